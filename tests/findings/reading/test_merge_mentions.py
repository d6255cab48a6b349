"""Mentions of a report to its findings."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings


def concepts(report):
    return [(found.concept, found.alternatives) for found in abnormal_findings(report, extract_findings(report))]


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("No effusion. Clear lungs.", []),
        ("Opacity, most consistent with atelectasis.", [("atelectasis", ())]),
        ("Opacity. This likely represents pneumonia.", [("pneumonia", ())]),
        ("Opacity which could reflect pneumonia.", [("lung_opacity", ("pneumonia",))]),
        ("Opacity consistent with a pleural effusion.", [("pleural_effusion", ())]),
        ("Consolidation versus atelectasis.", [("consolidation", ("atelectasis",))]),
        # neither is the other's kind
        ("Cardiomegaly, likely from hiatal hernia.", [("cardiomegaly", ()), ("hiatal_hernia", ())]),
        ("Effusion. Consolidation. The effusion is small.", [("pleural_effusion", ()), ("consolidation", ())]),
        ("Left effusion. Right effusion.", [("pleural_effusion", ()), ("pleural_effusion", ())]),
        ("5 mm nodule. 9 mm nodule.", [("lung_nodule", ()), ("lung_nodule", ())]),
        ("Fracture of the T8 vertebra.", [("vertebral_compression", ())]),
        # two names in one noun phrase
        ("Consolidating opacities in both lungs.", [("consolidation", ())]),
        ("Scar-like opacity in the lingula.", [("fibrotic_sequela", ())]),
        ("Nodular density increase in the left lung.", [("lung_nodule", ())]),
        ("Infectious infiltrates in the left lung.", [("pneumonia", ())]),
        # names of two findings
        ("Interstitial and septal thickening.", [("interstitial_opacity", ()), ("septal_thickening", ())]),
        (
            "Calcified plaques in the aorta and coronary arteries.",
            [("coronary_calcification", ()), ("arterial_calcification", ())],
        ),
        ("Consolidation-atelectasis in the left lung.", [("consolidation", ()), ("atelectasis", ())]),
        ("Interstitial lung disease.", [("interstitial_lung_disease", ())]),
        ("Right lower lobe opacity. Impression: Right lower lobe pneumonia.", [("pneumonia", ())]),
        ("Right effusion. Left effusion. Bilateral effusions.", [("pleural_effusion", ())] * 2),
        ("Blunted costophrenic angle, likely small effusion.", [("pleural_effusion", ())]),
        ("INDICATION: Pneumonia.\nFINDINGS: Small effusion.", [("pleural_effusion", ())]),
        # the cause, in a later sentence
        ("Ground glass. No effusion. Viral pneumonia is considered.", [("ground_glass_opacity", ("pneumonia",))]),
        ("Ground glass. Correlate with the clinic in terms of pneumonia.", [("ground_glass_opacity", ("pneumonia",))]),
        ("Ground glass. Pneumonia in the left lower lobe.", [("ground_glass_opacity", ()), ("pneumonia", ())]),
        ("Pneumonia is considered in the etiology.", [("pneumonia", ())]),
        # a part of what is on both sides
        ("Ground glass in both lungs with crazy paving on the right.", [("ground_glass_opacity", ())]),
        ("Ground glass in the left lung, crazy paving in the right lung.", [("ground_glass_opacity", ())] * 2),
        ("Hydropneumothorax.", [("pneumothorax", ()), ("pleural_effusion", ())]),
        # a heading that the statement names again
        ("Nodes: two enlarged hilar nodes.", [("lymphadenopathy", ())]),
        ("Pneumonia: consolidation in the right lung.", [("pneumonia", ()), ("consolidation", ())]),
        ("Pacemaker in place. The device is in satisfactory position.", [("pacemaker", ())]),
        # a label names the organ although "lobar" is a word for parts of the lung
        ("Thyroid: bilateral lobar enlargement.", [("thyroid_enlargement", ())]),
        (
            "Pleura: small right effusion together with thickening.",
            [("pleural_effusion", ()), ("pleural_thickening", ())],
        ),
        # a name without an article describes the lesion before
        ("Nodules in both lungs, the largest is in the right lung (IM5), solid nodule, 4 mm.", [("lung_nodule", ())]),
        (
            "Bronchiectasis on the left, its wall is thickened.",
            [("bronchiectasis", ()), ("peribronchial_thickening", ())],
        ),
        ("The 8th rib is interrupted.", [("fracture", ())]),
        ("The liver has a nodular, undulating outline.", [("cirrhosis", ())]),
        ("A round low density can be seen in the liver.", [("hepatic_low_density", ())]),
        ("Density increases in ground glass density in both lungs.", [("ground_glass_opacity", ())]),
        ("Lungs: prominent, irregular bronchovascular markings.", [("increased_markings", ())]),
        # the findings after the section on the history are a list
        (
            "History: lung cancer.\n- Left lung: nodule.\n- Pleura: effusion.",
            [("lung_nodule", ()), ("pleural_effusion", ())],
        ),
        ("Beneath both hemidiaphragms there are multiple high-attenuation nodules.", [("lung_nodule", ())]),
        (
            "Pleura: large free right effusion, with collapse of the lung.",
            [("pleural_effusion", ()), ("atelectasis", ())],
        ),
        ("Multiple cord foci with high density shadow in the right lung.", [("fibrotic_sequela", ())]),
        ("Infiltration areas of ground glass density in both lungs.", [("ground_glass_opacity", ())]),
        ("Transparent areas under the pleura of both upper lungs.", [("bulla", ())]),
        ("Abdomen: rounded hypodensity, left hepatic lobe.", [("hepatic_low_density", ())]),
        ("Heart, airways, esophagus and mediastinal nodes unremarkable.", []),
        ("The transmittance of the lung fields is not uniform.", [("mosaic_attenuation", ())]),
        ("Beneath the skin of the back lies a soft-tissue mass.", [("chest_wall_mass", ())]),
        ("Linear/band-like opacities bilaterally.", [("fibrotic_sequela", ())]),
        # a nodule at a station of the mediastinal nodes
        ("Small nodules up to 7 mm in the paratracheal area.", [("lymph_node", ())]),
        # two adjectives with one noun
        ("Nodular and linear opacities in both lungs.", [("lung_nodule", ()), ("fibrotic_sequela", ())]),
        ("There are dilated, thick-walled bronchi.", [("bronchiectasis", ()), ("peribronchial_thickening", ())]),
    ],
)
def test_abnormal_findings_of_a_report(report, expected):
    assert concepts(report) == expected


@pytest.mark.parametrize(
    ("report", "position"),
    [
        ("ET tube tip in the right mainstem bronchus.", "malpositioned"),
        ("Right mainstem intubation.", "malpositioned"),
        ("NG tube tip in the stomach.", "satisfactory"),
        ("PICC tip in the SVC.", "satisfactory"),
        # only a device has a position
        ("Nodule with retraction of the pleura.", None),
        ("ET tube and NG tube are in satisfactory position.", "satisfactory"),
    ],
)
def test_abnormal_findings_positions_of_devices(report, position):
    found = abnormal_findings(report, extract_findings(report))
    assert {finding.device_position for finding in found} == {position}


def test_abnormal_findings_what_is_repeated_adds_up():
    report = "Pleural effusion on the left. Impression: Small effusion."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.laterality, finding.severity) == ("left", "mild")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        # one lesion
        ("Calcified nodule. The size of the nodule is 6 mm.", [(None, 6.0)]),
        ("A nodule in the right lung. The nodule size is about 6x5mm.", [("right", 6.0)]),
        ("A nodule in the right lung. Nodule size 6 mm.", [("right", 6.0)]),
        ("A nodule in the right lung. The lesion measures 6 mm.", [("right", 6.0)]),
        ("A nodule of 6 mm in the right lung. The nodule is in the upper lobe.", [("right", 6.0)]),
        # one group with the size of its largest
        ("Nodules in both lungs. The largest nodule is in the left lower lobe and 7 mm.", [("bilateral", 7.0)]),
        ("Nodules in both lungs, the larger one in the left lower lobe. The size is 7 x 5 mm.", [("bilateral", 7.0)]),
        ("Two nodules in the left lung. The larger is 7 mm.", [("left", 7.0)]),
        ("Nodules of 4 mm in both lungs. The largest nodule is 7 mm.", [("bilateral", 7.0)]),
        ("Nodules in both lungs. The largest of these is 7 mm.", [("bilateral", 7.0)]),
        ("Several nodules in the lung. The larger nodule is in the left lung.", [("left", None)]),
        ("Nodules in both lungs. The ground glass nodule is 7 mm.", [("bilateral", 7.0)]),
        # several
        ("A ground glass nodule in the right lung. A calcified nodule in the right lung.", [("right", None)] * 2),
        (
            "A solid nodule in the left lung. The nodule is 5 mm. A subsolid nodule. The nodule is 4 mm.",
            [("left", 5.0), (None, 4.0)],
        ),
        ("A nodule. A second nodule in the left lung.", [(None, None), ("left", None)]),
        ("A nodule in the left lung. The right nodule is 4 mm.", [("left", None), ("right", 4.0)]),
        # of something else
        ("A nodule in the left lung. The diameter of the aorta is 35 mm.", [("left", None)]),
        ("A nodule in the left lung. The size of the heart is normal.", [("left", None)]),
    ],
)
def test_abnormal_findings_one_lesion_is_one_finding(report, expected):
    found = abnormal_findings(report, extract_findings(report))
    assert [(finding.laterality, finding.size_mm) for finding in found] == expected


PAIRS = [
    ("There is an 8 mm nodule in the right upper lobe.", "RUL nodule, 8 mm."),
    ("A nodule measuring 6 x 4 mm is seen in the left lower lobe.", "6x4mm LLL nodule."),
    ("A 5 mm nodule is present in the right middle lobe.", "RML: 0.5 cm nodule."),
    ("Multiple small nodules in both lungs.", "Both lungs contain multiple small nodules."),
    ("Ground-glass opacity in the left upper lobe.", "GGO, LUL."),
    ("Ground glass opacities are observed in both lower lobes.", "Bilateral lower lobe GGOs."),
    ("Consolidation in the right lower lobe.", "RLL consolidation."),
    ("There is consolidation of the left lower lobe with air bronchograms.", "LLL consolidation w/ air bronchograms."),
    ("Small right pleural effusion.", "There is a small amount of pleural fluid on the right."),
    ("Bilateral pleural effusions.", "Pleural effusion is present on both sides."),
    ("Left-sided pneumothorax.", "There is a pneumothorax on the left."),
    ("The right pleura is thickened.", "Thickening of the right pleura."),
    ("Emphysema in both upper lobes.", "Bilateral upper lobe emphysematous changes."),
    ("Centrilobular emphysema is seen in both lungs.", "Both lungs show centrilobular emphysema."),
    ("Bronchiectasis in the right middle lobe.", "The bronchi of the right middle lobe are dilated."),
    ("Bronchial wall thickening in both lungs.", "The walls of the bronchi are thickened in both lungs."),
    ("Linear atelectasis in the left lower lobe.", "Bands of linear atelectasis, LLL."),
    ("Fibrotic bands in the right lung apex.", "Fibrotic strands at the apex of the right lung."),
    ("Scarring in the right upper lobe.", "RUL scar."),
    (
        "Interlobular septal thickening is seen in both lower lobes.",
        "The interlobular septa are thickened in both lower lobes.",
    ),
    ("Mosaic attenuation in both lungs.", "Both lungs have a mosaic pattern of attenuation."),
    ("The heart is enlarged.", "Cardiomegaly."),
    ("Cardiac enlargement is noted.", "Enlargement of the heart."),
    ("Pericardial effusion.", "There is fluid in the pericardium."),
    ("Pericardial effusion of 8 mm.", "8 mm of pericardial fluid."),
    ("Calcification of the coronary arteries.", "Coronary artery calcification."),
    ("LAD calcification.", "Calcified plaques in the left anterior descending artery."),
    ("Atherosclerotic calcification of the aorta.", "Calcified atheroma of the aortic wall."),
    ("The ascending aorta is dilated, 45 mm.", "Dilatation of the ascending aorta to 4.5 cm."),
    ("Enlarged mediastinal lymph nodes.", "Mediastinal lymphadenopathy."),
    ("Enlarged right hilar lymph node, 14 mm.", "Right hilar LN enlarged at 1.4 cm."),
    ("A filling defect is seen in the right pulmonary artery.", "Embolus in the right pulmonary artery."),
    ("The main pulmonary artery is dilated.", "Dilatation of the main pulmonary artery."),
    ("Sliding hiatal hernia.", "Hiatus hernia of sliding type."),
    ("The esophageal wall is thickened.", "Oesophageal wall thickening."),
    ("Hepatic steatosis.", "Fatty liver."),
    ("Fatty infiltration of the liver.", "The liver shows diffuse fatty change."),
    ("A cyst in the right kidney, 20 mm.", "2 cm right renal cyst."),
    ("Stones in the gallbladder.", "Cholelithiasis."),
    ("Gallstones are seen.", "The gallbladder contains stones."),
    ("A stone in the left kidney, 5 mm.", "Left nephrolithiasis, 5 mm."),
    ("Nodule in the left adrenal gland, 15 mm.", "15 mm left adrenal nodule."),
    ("Thyroid nodule on the right, 12 mm.", "Right thyroid lobe nodule, 1.2 cm."),
    ("Splenomegaly.", "The spleen is enlarged."),
    ("Hepatomegaly.", "The liver is enlarged."),
    ("Fracture of the left fifth rib.", "Left 5th rib fracture."),
    ("Compression fracture of T12.", "The T12 vertebral body is compressed by a fracture."),
    ("Osteophytes are seen in the vertebrae.", "Vertebral osteophytosis."),
    ("Scoliosis of the thoracic spine.", "The thoracic spine is scoliotic."),
    ("Ascites.", "Free fluid in the abdomen."),
    ("Pneumonia cannot be excluded in the left lower lobe.", "Possible pneumonia in the LLL."),
    ("Findings are consistent with pneumonia in the right upper lobe.", "RUL findings c/w pneumonia."),
    ("The lungs are without consolidation.", "No consolidation in the lungs."),
    ("No pleural effusion, mild emphysema in both lungs.", "Both lungs mildly emphysematous w/o pleural effusion."),
    ("There is no pneumothorax.", "Pneumothorax is not seen."),
    ("The heart is not enlarged.", "No cardiomegaly."),
    ("No enlarged lymph nodes are seen in the mediastinum.", "No mediastinal lymphadenopathy."),
    ("The previously seen effusion has resolved.", "The pleural effusion noted before is no longer visible."),
    ("Mass in the right upper lobe, 35 mm.", "A 3.5 cm mass occupies the right upper lobe."),
    ("Spiculated mass of 4 cm in the left upper lobe.", "LUL: 40 mm mass with spiculated margins."),
    ("Cavitary lesion in the right upper lobe.", "A cavity is present in the right upper lobe."),
    ("Reticular opacities in both lower lobes.", "Bilateral lower lobe reticulation."),
    ("Honeycombing in both lower lobes.", "Both lower lobes show honeycomb change."),
    ("Tree-in-bud nodules in the right lower lobe.", "RLL tree-in-bud opacities."),
    ("Elevation of the right hemidiaphragm.", "The right hemidiaphragm is raised."),
    ("A central venous catheter with its tip in the SVC.", "CVC tip in the superior vena cava."),
    ("Pacemaker in the left chest wall.", "Left chest wall pacemaker."),
    ("Sternal wires after sternotomy.", "Median sternotomy wires."),
    ("Goitre.", "The thyroid gland is enlarged."),
    ("Pneumomediastinum.", "Air in the mediastinum."),
    ("Subcutaneous emphysema of the left chest wall.", "Air in the subcutaneous tissue of the left chest wall."),
    ("Air trapping in both lungs.", "Both lungs show air trapping."),
    ("Pleural plaques on both sides, calcified.", "Bilateral calcified pleural plaques."),
    ("A bulla in the right upper lobe, 3 cm.", "RUL bulla measuring 30 mm."),
    ("Left lower lobe collapse.", "The left lower lobe is collapsed."),
    (
        "Nodule in the right lung, stable since the previous scan.",
        "Right lung nodule, no change compared with the prior scan.",
    ),
    ("Rib metastases on the right.", "Metastatic lesions in the right ribs."),
    ("Multiple hypodense lesions in the liver.", "The liver contains multiple low-density lesions."),
    ("Diffuse osteopenia.", "Bone density is diffusely reduced."),
    ("Varicose bronchiectasis in both lower lobes.", "Both lower lobes show varicose bronchial dilatation."),
    ("Minimal bilateral pleural effusion.", "Trace pleural fluid bilaterally."),
    ("Dependent atelectasis in both lungs.", "Atelectasis in the dependent portions of both lungs."),
    (
        "Patchy consolidation and ground-glass opacities are seen in both lower lobes.",
        "In both lower lobes there are patchy areas of consolidation and GGO.",
    ),
    (
        "The right upper lobe contains a 7 mm solid nodule.",
        "A solid nodule with a diameter of 7 mm is located in the upper lobe of the right lung.",
    ),
    (
        "Two nodules are seen in the left lung, the larger measuring 6 mm.",
        "The left lung has two nodules; the largest is 6 mm.",
    ),
    (
        "Multiple nodules in both lungs, the largest 9 mm in the right lower lobe.",
        "Bilateral pulmonary nodules are noted, up to 9 mm in the RLL.",
    ),
    (
        "The trachea and main bronchi are patent; there is a 5 mm nodule in the lingula.",
        "Patent central airways. 5 mm lingular nodule.",
    ),
    (
        "Moderate right pleural effusion; no pneumothorax.",
        "Right-sided pleural effusion, moderate in volume, w/o pneumothorax.",
    ),
    ("Fluid is seen in the right pleural space.", "There is right pleural fluid."),
    ("Bilateral pleural fluid measuring 20 mm on the right.", "Pleural effusion on both sides, 2 cm on the right."),
    (
        "The walls of the aorta and coronary arteries are calcified.",
        "Calcification of the aortic wall and coronary arteries.",
    ),
    (
        "Atheromatous plaques are observed in the thoracic aorta and coronary arteries.",
        "Atheroma of the thoracic aorta and the coronaries.",
    ),
    ("Heart size is increased.", "The heart is larger than normal."),
    ("The cardiothoracic ratio is increased in favour of the heart.", "Increased cardiothoracic ratio."),
    ("Minimal pericardial effusion.", "A trace of pericardial fluid is present."),
    ("Mediastinal lymph nodes with a short axis of 12 mm.", "Mediastinal LNs, short axis 12 mm."),
    ("Enlarged lymph nodes in the axilla, on the left.", "Left axillary lymphadenopathy."),
    ("The esophagus is dilated.", "Dilatation of the oesophagus."),
    ("Pleuroparenchymal sequelae are seen at both apices.", "Biapical pleuroparenchymal scarring."),
    ("Linear opacities in the left lower lobe.", "Streaky opacities, left lower lobe."),
    ("Crazy paving in the right lung.", "The right lung shows a crazy-paving pattern."),
    ("The bronchial walls are thickened in the lower lobes.", "Thickened bronchial walls, lower lobes."),
    ("Mucus plugging in the left lower lobe bronchi.", "Left lower lobe bronchi are filled with mucus."),
    ("Paraseptal emphysema at both apices.", "Biapical paraseptal emphysematous changes."),
    ("There is a 25 mm bulla at the left apex.", "Left apical bulla (2.5 cm)."),
    ("The left lung has lost volume.", "Volume loss of the left lung."),
    ("Mediastinal shift to the right.", "The mediastinum is displaced to the right."),
    ("Dissection of the aortic arch.", "There is an aortic arch dissection flap."),
    (
        "Pulmonary embolism in the right lower lobe artery.",
        "A thrombus is seen in the right lower lobe pulmonary artery.",
    ),
    ("The pulmonary trunk is wider than normal at 34 mm.", "Pulmonary trunk dilated to 34 mm."),
    ("The liver has a hypodense lesion of 11 mm.", "11 mm hypoattenuating liver lesion."),
    ("A simple cyst is seen in the liver, 15 mm.", "15 mm hepatic cyst."),
    (
        "The density of the liver is decreased, consistent with steatosis.",
        "Hepatic attenuation is reduced c/w fatty liver.",
    ),
    ("A cyst of 3 cm in the left kidney.", "Left renal cyst, 30 mm."),
    ("Calculi are seen in both kidneys.", "Bilateral renal stones."),
    ("Gallbladder stones are noted.", "Calculi in the gallbladder."),
    ("The gallbladder was not observed (operated).", "Status post cholecystectomy."),
    ("The left adrenal gland is thickened.", "Thickening of the left adrenal gland."),
    ("A 2 cm adenoma in the right adrenal.", "Right adrenal adenoma 20 mm."),
    ("An accessory spleen of 10 mm.", "10 mm accessory spleen."),
    ("Hypodense nodules are seen in both thyroid lobes.", "Both lobes of the thyroid contain hypodense nodules."),
    ("Calcification in the left thyroid lobe.", "The left lobe of the thyroid is calcified."),
    ("Old fractures of the right ribs.", "Healed right rib fractures."),
    ("Loss of height of the T8 vertebral body.", "The T8 vertebral body has lost height."),
    ("Sclerotic lesion in the sternum.", "The sternum contains a sclerotic lesion."),
    ("Lytic lesions in the vertebrae.", "Vertebral lytic lesions."),
    ("Schmorl nodes in the thoracic vertebrae.", "Thoracic vertebral Schmorl's nodes."),
    ("Increased thoracic kyphosis.", "Thoracic kyphosis is increased."),
    ("Port catheter with its tip in the superior vena cava.", "Port-a-cath, tip in the SVC."),
    ("The tip of the endotracheal tube is 4 cm above the carina.", "ETT tip 4 cm above carina."),
    ("A chest tube in the right hemithorax.", "Right-sided chest drain."),
    ("Coronary stents.", "Stents are seen in the coronary arteries."),
    ("Prosthetic aortic valve.", "The aortic valve has been replaced by a prosthesis."),
    ("A nodule in the right breast of 12 mm.", "12 mm right breast nodule."),
    ("Bilateral gynecomastia.", "Gynaecomastia on both sides."),
    ("Small amount of free fluid around the liver.", "Small perihepatic free fluid."),
    ("The appearance suggests viral pneumonia.", "Findings suggestive of viral pneumonia."),
    ("Lungs are clear. No pleural effusion.", "Clear lungs, no pleural effusion."),
    ("There is neither pleural effusion nor pneumothorax.", "No pleural effusion or pneumothorax."),
    ("No nodule or mass in either lung.", "Both lungs are free of nodules and masses."),
    ("No pericardial effusion or thickening.", "Pericardial effusion-thickening was not observed."),
    ("No lytic or destructive bone lesion.", "Lytic-destructive lesions were not detected in the bones."),
    ("The pleural effusion on the left has decreased.", "Decreased left pleural effusion."),
    (
        "New consolidation in the right lower lobe.",
        "Consolidation in the right lower lobe which was not present before.",
    ),
    ("Air bronchograms within the left upper lobe consolidation.", "LUL consolidation containing air bronchograms."),
    ("Partial collapse of the right middle lobe.", "RML partial atelectasis."),
    ("Lung cancer in the right upper lobe, 5 cm.", "Right upper lobe lung carcinoma measuring 50 mm."),
    ("Cavity of 3 cm in the left upper lobe.", "Left upper lobe cavitary lesion, 30 mm."),
    ("Bilateral hilar lymphadenopathy.", "Enlarged lymph nodes at both hila."),
    (
        "Thickening of the left adrenal gland and a right renal cyst.",
        "Left adrenal thickening; cyst in the right kidney.",
    ),
    ("Increased lung markings bilaterally.", "The markings of both lungs are increased."),
    ("A subpleural nodule, 4 mm, in the right lower lobe.", "RLL subpleural 4-mm nodule."),
    ("Ground-glass nodule of 8 mm in the left upper lobe.", "LUL GGN, 8 mm."),
    ("Part-solid nodule of 12 mm in the right lower lobe.", "12 mm subsolid nodule with a solid component, RLL."),
]


def _said(report):
    """What a report says of each concept: side, levels and size of the abnormal ones, and which are denied."""
    mentions = extract_findings(report)
    abnormal = {
        (found.concept, found.presence, found.laterality, frozenset(found.location), found.size_mm)
        for found in abnormal_findings(report, mentions)
    }
    return abnormal, {found.concept for found in mentions if found.presence == "absent"}


@pytest.mark.parametrize(("wording", "other"), PAIRS)
def test_abnormal_findings_wordings_say_the_same(wording, other):
    abnormal, denied = said = _said(wording)
    assert abnormal or denied
    assert _said(other) == said


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Opacity (pneumonia) in the right lower lobe.", ["pneumonia"]),
        ("GGO (ground-glass opacity) in the left lung.", ["ground_glass_opacity"]),
        ("Increased density (consolidation) in the right middle lobe.", ["consolidation"]),
        ("Cystic lesions (bullae) in the apices.", ["bulla"]),
        ("Linear opacity (scar) at the left base.", ["fibrotic_sequela"]),
        ("Stones in the gallbladder (cholelithiasis).", ["gallstone"]),
        ("Consolidation (with air bronchograms) and effusion (small).", ["consolidation", "pleural_effusion"]),
    ],
)
def test_abnormal_findings_parentheses_gloss_the_finding_before_them(report, expected):
    assert [found.concept for found in abnormal_findings(report, extract_findings(report))] == expected


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("Right rib fracture. Small effusion. Addendum: there is no rib fracture.", ["pleural_effusion"]),
        ("Nodule in the right upper lobe. On second look the nodule is a nipple shadow.", []),
        ("Small left pneumothorax. Erratum: the pneumothorax is artifactual.", []),
        ("Left nodule. Addendum: no nodule in the right lung.", ["lung_nodule"]),
        ("Consolidation in the left lower lobe. No consolidation elsewhere.", ["consolidation"]),
    ],
)
def test_abnormal_findings_an_addendum_withdraws_what_it_denies(report, expected):
    assert [found.concept for found in abnormal_findings(report, extract_findings(report))] == expected


@pytest.mark.parametrize(
    ("report", "concepts"),
    [
        ("There is a collection of 25 mm, most likely loculated pleural fluid.", ["pleural_effusion"]),
        ("Loculated collection, probably an empyema, on the right.", ["empyema"]),
    ],
)
def test_abnormal_findings_open_finding_is_what_it_is_said_to_be(report, concepts):
    found = abnormal_findings(report, extract_findings(report, open_findings=True))
    assert [finding.concept for finding in found] == concepts


def test_abnormal_findings_described_lesion_is_the_one_that_a_later_sentence_introduces():
    report = "The described mass is stable. A mass of 64 mm is seen in the right upper lobe."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.size_mm, finding.change) == (64.0, "stable")


def test_merged_mentions_keep_their_alternatives():
    report = "Mosaic attenuation with expiratory air trapping, suspicious for bronchiolitis obliterans."
    (finding,) = abnormal_findings(report, extract_findings(report))
    assert (finding.concept, finding.alternatives) == ("mosaic_attenuation", ("obliterative_bronchiolitis",))

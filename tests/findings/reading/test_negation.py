"""Where a denial, a doubt or a history ends within a sentence, and what names a finding without stating it."""

import pytest

from rrg_rewards.findings import abnormal_findings, extract_findings, get_engine
from rrg_rewards.labelers import RuleLabeler
from rrg_rewards.questions.engine import build_items

_MARKS = {"present": "+", "absent": "-", "uncertain": "?"}

# Sentence, and what it says of each finding: + present, - absent, ? uncertain.
SENTENCES = [
    ("Gallstones present, hydronephrosis absent, ascites absent.", "+gallstone -hydronephrosis -ascites"),
    ("Effusion and consolidation present, pneumothorax absent.", "+pleural_effusion +consolidation -pneumothorax"),
    ("Effusion seen, in the meantime resolved.", "-pleural_effusion"),
    ("Nodules (none cavitating), no effusion.", "+lung_nodule -cavity -pleural_effusion"),
    ("Multiple nodules (none cavitating) are seen.", "+lung_nodule -cavity"),
    ("Rib fractures (none displaced).", "+fracture"),
    ("Effusion (none).", "-pleural_effusion"),
    ("No pleural effusion, pleural thickening on both sides.", "-pleural_effusion +pleural_thickening"),
    ("No pleural effusion, thickening of the right pleura.", "-pleural_effusion +pleural_thickening"),
    ("No mass, nodules in the right lung are seen.", "-lung_mass +lung_nodule"),
    ("No effusion but a small nodule is present.", "-pleural_effusion +lung_nodule"),
    ("No mass, nodule or infiltration.", "-lung_mass -lung_nodule -lung_opacity"),
    ("No mass, nodule, infiltration.", "-lung_mass -lung_nodule -lung_opacity"),
    ("No mass, nodule or infiltration is seen in the right lung.", "-lung_mass -lung_nodule -lung_opacity"),
    ("No pleural effusion or pleural thickening.", "-pleural_effusion -pleural_thickening"),
    ("No pleural effusion and pleural thickening.", "-pleural_effusion -pleural_thickening"),
    ("Mass, nodule-infiltration was not detected in both lungs.", "-lung_mass -lung_nodule -lung_opacity"),
    ("Consolidation or nodule not observed.", "-consolidation -lung_nodule"),
    ("Pleural effusion not seen.", "-pleural_effusion"),
    ("Pleural effusion: not seen.", "-pleural_effusion"),
    ("There is no pleural effusion, and the right pleura is thickened.", "-pleural_effusion +pleural_thickening"),
    ("There is no pleural effusion and the right pleura is thickened.", "-pleural_effusion +pleural_thickening"),
    (
        "No obvious mass is found in the mediastinum, and enlarged lymph nodes can be seen in the mediastinum.",
        "-mediastinal_mass +lymphadenopathy",
    ),
    ("Nodules can be seen in both lungs.", "+lung_nodule"),
    ("Consolidation can be seen in the right lower lobe with pleural effusion.", "+consolidation +pleural_effusion"),
    ("After surgery for a lung tumor.", "-lung_mass +postsurgical_change"),
    ("History of pneumonia.", "-pneumonia"),
    ("The heart is not enlarged.", "-cardiomegaly"),
    ("The heart is not large.", "-cardiomegaly"),
    ("The heart is not considered enlarged.", "-cardiomegaly"),
    ("Blunted angle (pleural thickening rather than fluid).", "+pleural_thickening"),
    ("Prior right pneumothorax, status post drainage.", "-pneumothorax"),
    ("The prior right pneumothorax, status post drainage, is smaller.", "+pneumothorax"),
    ("No nodule in either lung.", "-lung_nodule"),
    ("Heart size is within normal limits.", "-cardiomegaly"),
    ("Cardiac size within normal limits.", "-cardiomegaly"),
    ("No cardiomegaly.", "-cardiomegaly"),
    ("The bilateral hila are not enlarged.", "-hilar_enlargement"),
    ("The lymph nodes are not enlarged.", "-lymphadenopathy"),
    ("Lymph nodes are not pathologically enlarged.", "-lymphadenopathy"),
    ("The pulmonary artery is not dilated.", "-pulmonary_hypertension"),
    ("The aorta is not aneurysmal or dilated.", "-aortic_aneurysm"),
    ("The bronchi are not dilated.", "-bronchiectasis"),
    ("No bronchial dilatation.", "-bronchiectasis"),
    ("Pleura is not thickened.", "-pleural_thickening"),
    ("Interlobular septa are not thickened.", "-septal_thickening"),
    ("Lungs are without consolidation, with scattered nodules.", "-consolidation +lung_nodule"),
    ("Nodules without calcification.", "+lung_nodule"),
    ("Malignancy cannot be excluded.", "?lung_mass"),
    ("Pneumonia cannot be excluded.", "?pneumonia"),
    ("Pneumonia could not be ruled out.", "?pneumonia"),
    ("Findings suspicious for pneumonia.", "?pneumonia"),
    ("Suspected pneumonia.", "?pneumonia"),
    ("Pneumonia is suspected.", "?pneumonia"),
    ("Pneumonia is less likely.", "?pneumonia"),
    ("Pneumonia is unlikely.", "?pneumonia"),
    ("Consolidation?, nodule?", "?consolidation ?lung_nodule"),
    ("Nodule in the right lung, metastasis?", "+lung_nodule"),
    ("Previously seen nodules were not observed in this examination.", "-lung_nodule"),
    ("The previously described consolidation is not observed.", "-consolidation"),
    ("The nodule seen in the previous CT was not observed in the current examination.", "-lung_nodule"),
    ("The previously noted pleural effusion has resolved.", "-pleural_effusion"),
    ("Interval resolution of the left pleural effusion.", "-pleural_effusion"),
    ("Complete resolution of pneumonia.", "-pneumonia"),
    ("Pleural effusion has regressed completely.", "-pleural_effusion"),
    ("Pleural effusion has regressed.", "+pleural_effusion"),
    ("The consolidation has been absorbed.", "-consolidation"),
    ("The consolidation has been partially absorbed.", "+consolidation"),
    ("No change in the right upper lobe nodule.", "+lung_nodule"),
    ("Nodule in the right upper lobe, no change.", "+lung_nodule"),
    ("No significant change in size of nodules.", "+lung_nodule"),
    ("Nodules show no significant change.", "+lung_nodule"),
    ("The nodule has not changed.", "+lung_nodule"),
    ("No interval growth of the nodule.", "+lung_nodule"),
    ("No new nodules.", "-lung_nodule"),
    ("No focal consolidation, pleural effusion, or pneumothorax.", "-consolidation -pleural_effusion -pneumothorax"),
    ("No focal consolidation. Small right effusion.", "-consolidation +pleural_effusion"),
    ("No pneumothorax; small right effusion.", "-pneumothorax +pleural_effusion"),
    ("No pneumothorax, small right effusion.", "-pneumothorax +pleural_effusion"),
    ("No pneumothorax, right effusion 2 cm.", "-pneumothorax +pleural_effusion"),
    ("No pneumothorax with small right effusion.", "-pneumothorax +pleural_effusion"),
    ("No pneumothorax though small effusion.", "-pneumothorax +pleural_effusion"),
    ("No pneumothorax; however, there is an effusion.", "-pneumothorax +pleural_effusion"),
    ("No significant lymphadenopathy, a few small nodules in the left lung.", "-lymphadenopathy +lung_nodule"),
    ("No lymphadenopathy, nodule of 5 mm in the left lung.", "-lymphadenopathy +lung_nodule"),
    ("No lymphadenopathy, 5 mm nodule in the left lung.", "-lymphadenopathy +lung_nodule"),
    ("No lymphadenopathy, calcified granuloma in the left lung.", "-lymphadenopathy +granuloma"),
    ("No lymphadenopathy, emphysema predominantly in the upper lobes.", "-lymphadenopathy +emphysema"),
    ("No mass, consolidation.", "-lung_mass -consolidation"),
    ("No pleural effusion, pneumothorax.", "-pleural_effusion -pneumothorax"),
    ("No pleural effusion, pneumothorax or pneumonia.", "-pleural_effusion -pneumothorax -pneumonia"),
    (
        "No pleural or pericardial effusion, pneumothorax or consolidation is seen.",
        "-pleural_effusion -pericardial_effusion -pneumothorax -consolidation",
    ),
    ("Neither pleural effusion nor pneumothorax is seen.", "-pleural_effusion -pneumothorax"),
    ("Nor is there a pleural effusion.", "-pleural_effusion"),
    ("Pleural effusion and pneumothorax are absent.", "-pleural_effusion -pneumothorax"),
    ("Absence of pleural effusion.", "-pleural_effusion"),
    ("Lungs are clear of consolidation.", "-consolidation"),
    ("Pleural effusion was not identified on either side.", "-pleural_effusion"),
    ("There is no mediastinal, hilar or axillary lymphadenopathy.", "-lymphadenopathy"),
    ("No pathologically enlarged lymph nodes.", "-lymphadenopathy"),
    ("No enlarged lymph nodes are seen in the mediastinum, hila or axillae.", "-lymphadenopathy"),
    ("Lungs: no nodule, no mass, no consolidation.", "-lung_nodule -lung_mass -consolidation"),
    ("Pleura: no effusion.", "-pleural_effusion"),
    ("Pleural effusion: negative.", "-pleural_effusion"),
    ("Pleural effusion - no.", "-pleural_effusion"),
    ("Pleural effusion: none. Pneumothorax: none.", "-pleural_effusion -pneumothorax"),
    ("W/o pleural effusion.", "-pleural_effusion"),
    ("Nodules w/o calcification in RUL.", "+lung_nodule"),
    ("Normal lungs w/o infiltrate.", "-lung_opacity"),
    ("The nodule is not calcified.", "+lung_nodule"),
    ("Non-calcified nodule in the left lung.", "+lung_nodule"),
    ("Noncalcified nodule.", "+lung_nodule"),
    ("Nodule not seen on prior exam.", "+lung_nodule"),
    ("Nodules that were not present in the previous examination are observed.", "+lung_nodule"),
    ("Pneumonia has cleared.", "-pneumonia"),
    ("No residual consolidation.", "-consolidation"),
    ("No recurrence of the tumor.", "-lung_mass"),
    ("No definite evidence of pulmonary embolism.", "-pulmonary_embolism"),
    ("No filling defect in the pulmonary arteries.", "-pulmonary_embolism"),
    ("No filling defect to suggest pulmonary embolism.", "-pulmonary_embolism"),
    ("No CT evidence of pneumonia.", "-pneumonia"),
    ("No radiologic findings of pneumonia.", "-pneumonia"),
    ("No findings to suggest pneumonia.", "-pneumonia"),
    ("No finding in favor of pneumonia was detected.", "-pneumonia"),
    ("Findings are not compatible with pneumonia.", "-pneumonia"),
    ("Not typical for pneumonia.", "-pneumonia"),
    ("Findings not consistent with pneumonia.", "-pneumonia"),
    (
        "The lungs are hyperinflated without focal consolidation or effusion.",
        "+hyperinflation -consolidation -pleural_effusion",
    ),
    ("Pneumothorax is no longer seen.", "-pneumothorax"),
    ("No more pleural effusion.", "-pleural_effusion"),
    ("The pleural effusion is no longer present.", "-pleural_effusion"),
    ("Prior pneumothorax has resolved.", "-pneumothorax"),
    ("Resolved pneumothorax.", "-pneumothorax"),
    ("The consolidations have completely disappeared.", "-consolidation"),
    ("Disappearance of ground glass opacities.", "-ground_glass_opacity"),
    ("Ground glass opacities almost completely resolved.", "+ground_glass_opacity"),
    ("Ground glass opacities have largely resolved with residual bands.", "+ground_glass_opacity"),
    ("There is nothing to suggest consolidation.", "-consolidation"),
    ("I do not see any consolidation.", "-consolidation"),
    ("We did not find any nodules.", "-lung_nodule"),
    ("The scan does not show any nodule.", "-lung_nodule"),
    ("CT failed to demonstrate any pleural fluid.", "-pleural_effusion"),
    ("Consolidation is not appreciated.", "-consolidation"),
    ("Consolidation could not be demonstrated.", "-consolidation"),
    ("No sign of consolidation, but emphysema is evident.", "-consolidation +emphysema"),
    ("No sign of consolidation, yet emphysema is evident.", "-consolidation +emphysema"),
    ("No consolidation. There is, however, emphysema.", "-consolidation +emphysema"),
    ("There is emphysema but no consolidation or nodule.", "+emphysema -consolidation -lung_nodule"),
    ("Emphysema, no consolidation.", "+emphysema -consolidation"),
    ("Emphysema without consolidation.", "+emphysema -consolidation"),
    ("Emphysema; no consolidation, no effusion.", "+emphysema -consolidation -pleural_effusion"),
    (
        "Emphysema is seen, there is no consolidation or effusion, and the heart is enlarged.",
        "+emphysema -consolidation -pleural_effusion +cardiomegaly",
    ),
    ("No effusion, the heart is enlarged.", "-pleural_effusion +cardiomegaly"),
    ("No effusion and the heart is enlarged.", "-pleural_effusion +cardiomegaly"),
    ("No effusion and there is emphysema.", "-pleural_effusion +emphysema"),
    ("No effusion, with emphysema in both lungs.", "-pleural_effusion +emphysema"),
    ("No mass or nodule, consolidation in the left lower lobe.", "-lung_mass -lung_nodule +consolidation"),
    ("No mass or nodule, left lower lobe consolidation.", "-lung_mass -lung_nodule +consolidation"),
    ("No mass, nodule, or consolidation in the left lower lobe.", "-lung_mass -lung_nodule -consolidation"),
    ("No pleural effusion, no pneumothorax, bilateral atelectasis.", "-pleural_effusion -pneumothorax +atelectasis"),
    ("No pleural effusion, no pneumothorax, atelectasis at the bases.", "-pleural_effusion -pneumothorax +atelectasis"),
    ("No fracture, degenerative changes of the spine.", "-fracture +degenerative_change"),
    ("Coronary calcification, no pericardial effusion.", "+coronary_calcification -pericardial_effusion"),
    (
        "Pericardial effusion not present, coronary calcification present.",
        "-pericardial_effusion +coronary_calcification",
    ),
    ("Tumour was resected.", "-lung_mass"),
    ("The mass has been removed.", "-lung_mass"),
    ("Effusion is not increased.", "+pleural_effusion"),
    ("Effusion not increased in size.", "+pleural_effusion"),
    ("Effusions are not large.", "+pleural_effusion"),
    ("No large effusion.", "-pleural_effusion"),
    ("No large effusions or pneumothorax.", "-pleural_effusion -pneumothorax"),
    ("There is no enlargement of the heart.", "-cardiomegaly"),
    ("No enlargement of lymph nodes.", "-lymphadenopathy"),
    ("No increase in bronchial wall thickness.", "-peribronchial_thickening"),
    ("No wall thickening of the bronchi.", "-peribronchial_thickening"),
    ("No thickening of the pleura; nodule.", "-pleural_thickening +lung_nodule"),
    ("Lymph nodes in the mediastinum are not abnormal in size.", "-lymph_node"),
    ("Emphysema is not a feature.", "-emphysema"),
    ("Emphysema and bronchiectasis, no consolidation is seen.", "+emphysema +bronchiectasis -consolidation"),
    ("No increase in the wall thickness of the bronchi.", "-peribronchial_thickening"),
    ("There is no progression of the known pleural effusion.", "+pleural_effusion"),
]


@pytest.mark.parametrize(("sentence", "expected"), SENTENCES)
def test_presence_of_each_finding(sentence, expected):
    named = {mark[1:] for mark in expected.split()}
    for report in (sentence, f"Trachea is open. {sentence} Other.", sentence.upper()):
        said = {_MARKS[found.presence] + found.concept for found in extract_findings(report) if found.concept in named}
        assert said == set(expected.split()), report


# Statement after a label that names only a place, and what it says of each finding.
LABELED = [
    ("Pleura: mild thickening on the right, without effusion.", "+pleural_thickening -pleural_effusion"),
    ("Thyroid: both lobes are enlarged.", "+thyroid_enlargement"),
    ("Right pleura: no effusion.", "-pleural_effusion"),
    ("Right lung: no mass, 5 mm nodule in the upper lobe.", "-lung_mass +lung_nodule"),
    ("Effusion: no, emphysema: mild.", "-pleural_effusion +emphysema"),
]


@pytest.mark.parametrize(("sentence", "expected"), LABELED)
def test_presence_label_is_the_place_of_its_statement(sentence, expected):
    test_presence_of_each_finding(sentence, expected)


def test_presence_coiled_cords_are_no_malposition_and_the_skull_base_no_lower_zone():
    (cords,) = extract_findings("Coiled cords in the right lung.")
    assert cords.device_position is None
    (lesion,) = extract_findings("A lesion at the skull base.")
    assert lesion.location == ()


# One or two sentences of each kind are tried with every concept.
UNASSERTED = {
    "denials": """
        Unlikely X. | X (negative). | X (-). | X: 0 | X: 0. | Absent: X. | Nothing suggests X. | X is not
        the case.""",
    "reports": "This report does not describe X. | The report says nothing about X.",
    "former": "The previous examination showed X; now normal. | Prior CT showed X, now normal.",
    "tautologies": "X can be neither confirmed nor excluded. | Either X or no X. | X may or may not be present.",
    "conditions": "If X were present it would be seen. | Should X be present, it would be seen. | X would be visible.",
    "relatives": "The father had X. | Mother: X. | X in the family.",
    "requests": "Please look for X. | Look for X. | Is there X? | We were asked to look for X.",
}
MORE = {
    "denials": """
        X unlikely. | X is unlikely. | X is improbable. | X appears unlikely. | X (no). | X (absent). | X =
        0. | X: false. | X: none. | X: excluded. | Negative: X. | None: X. | No: X. | Not present: X. | Not
        seen: X. | Excluded: X. | Ruled out: X. | Negative findings: X. | Pertinent negatives: X. | Nothing
        indicates X. | Nothing points to X. | Nothing speaks for X. | Nothing in favor of X. | Nothing like
        X. | Low suspicion for X. | Low probability of X. | X is not there. | X is nowhere seen. | X is
        missing. | This excludes X. | The scan rules out X. | X is not suspected. | X is not considered. | X
        is not likely. | X is out of the question. | X is not in evidence. | X is not shown. | X never seen.
        | X is false. | X is not true. | Never X. | Zero X. | 0 X. | It is not true that there is X. | It is
        false that there is X. | There isn't X. | There is not X. | Findings argue against X. | Evidence
        against X. | X was sought but not found. | Not a case of X. | Anything but X. | Far from X. | X has
        been disproved. | X is refuted. | X negative.""",
    "reports": """
        X is not mentioned. | X is not described. | X is not discussed. | This text does not mention X. | No
        mention of X. | No comment on X. | The report is silent on X. | Nothing is said about X. | X is not
        the subject of this report. | This report is not about X. | The word X is not used.""",
    "former": """
        The prior CT demonstrated X. | The earlier study revealed X. | The last examination showed X. | The
        old examination had X. | Prior examination: X. | Previous report: X. | The previous report described
        X. | In 2018 there was X. | X was present in 2019. | X had been present before. | Former X. | Years
        ago X. | Previously X, now normal. | Earlier X, now gone. | The comparison study showed X.""",
    "tautologies": """
        X is neither confirmed nor excluded. | X can neither be confirmed nor excluded. | X is neither
        present nor absent. | Neither confirmed nor excluded: X. | X or no X. | Either no X or X. | X or
        not. | There may or may not be X. | X is either present or absent. | X may be present or absent. |
        X: yes/no. | X: yes or no. | X cannot be judged. | X could be there or not. | There is X or
        there is no X.""",
    "conditions": """
        If there were X, it would be visible. | If X is present, follow-up is advised. | Return if X
        develops. | Were X present, it would be visible. | Had there been X, it would have been described. |
        In case of X call us. | X would have been seen. | There would be X. | It would show X. | Unless X
        develops, no follow-up is needed. | Assuming X, treatment is advised. | Suppose X. | One would
        expect X. | Provided there is X. | X if present.""",
    "relatives": """
        The mother had X. | Family history of X. | Father with X. | The brother has X. | A relative had X. |
        The patient's father had X. | Positive family history for X. | X in his father. | Another patient
        had X.""",
    "requests": """
        Please exclude X. | Please check for X. | Check for X. | Search for X. | Please rule out X. | Kindly
        assess for X. | Are there signs of X? | Does the patient have X? | Question: X? | Clinical question:
        X. | Request: X. | Screening for X. | Referred for X. | Any X? | Tell us whether there is X. | Do
        you see X? | Risk of X. | To prevent X. | The question was X. | The term X.""",
}
# Similar words that state a finding.
STATED = """
        Unlike before there is X. | The previous examination is available; X. | X as in the previous
        examination. | The previous examination showed X, which persists. | The previous CT showed X, now
        increased. | X is not only old. | Please note that there is no change; X. | X, no longer enlarging.
        | Not only X. | X: 5 mm. | X (new). | X (+)."""
LEXICONS = ("chest", "chest_ct", "chest_xray")


def sentences(*tables):
    return [" ".join(sentence.split()) for table in tables for text in table for sentence in text.split("|")]


def names(lexicon):
    """Each concept's identifier in words, of those that name a finding by themselves."""
    engine = get_engine(lexicon)
    words = [concept.replace("_", " ") for concept in engine.lexicon.concepts]
    return [
        word for word, mask in zip(words, engine.masks([f"There is {word}." for word in words]), strict=True) if mask
    ]


def filled(sentence, name):
    text = sentence.replace("X", name)
    return text[0].upper() + text[1:]


@pytest.mark.parametrize("lexicon", LEXICONS)
@pytest.mark.parametrize("kind", UNASSERTED)
def test_presence_no_concept_is_stated(kind, lexicon):
    known = names(lexicon)
    assert len(known) > 0.3 * len(get_engine(lexicon).lexicon.concepts)
    reports = [filled(sentence, name) for sentence in sentences([UNASSERTED[kind]]) for name in known]
    assert [r for r, mask in zip(reports, get_engine(lexicon).masks(reports), strict=True) if mask] == []


@pytest.mark.parametrize("kind", MORE)
def test_presence_no_finding_is_stated(kind):
    # "The gallbladder was not found" says that it is gone.
    for name in (name for name in names("chest")[::12] if not name.endswith(("gallbladder", "kidney"))):
        for sentence in sentences([UNASSERTED[kind], MORE[kind]]):
            report = filled(sentence, name)
            assert abnormal_findings(report, extract_findings(report, open_findings=True)) == [], report


@pytest.mark.parametrize("name", ["pleural effusion", "consolidation", "cardiomegaly", "emphysema"])
def test_presence_similar_words_state_a_finding(name):
    for sentence in sentences([STATED]):
        report = filled(sentence, name)
        assert abnormal_findings(report, extract_findings(report)), report


@pytest.mark.parametrize("schema", ["ct_rate", "chexbert"])
def test_presence_no_label_is_set(schema):
    labeler = RuleLabeler(schema)
    reports = [
        filled(sentence, name) for sentence in sentences(UNASSERTED.values()) for name in ("effusion", "consolidation")
    ]
    labels = labeler(reports)
    kept = [i for i, label in enumerate(labeler.labels) if label != "No Finding"]
    assert not labels[:, kept].any()


def test_presence_no_question_finds_it():
    for name in ("pleural effusion", "consolidation", "emphysema"):
        assert build_items(f"There is {name}.")
        for sentence in sentences(UNASSERTED.values()):
            assert build_items(filled(sentence, name)) == (), filled(sentence, name)

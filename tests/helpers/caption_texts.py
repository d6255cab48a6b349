"""Reports with what the preparation of the VLM3D challenge removes, an empty one, and repeated words and blanks."""

PREDS = [
    'Findings: Small "left" effusion .\nNo mass_ . The heart is normal .<|eot_id|>',
    "Clear lungs.",
    "",
    "nodule",
    "No acute abnormality. No acute abnormality.",
    "small  left   effusion",
]
TARGET = [
    "Findings: Small left pleural effusion . No mass . \nThe heart is of normal size .",
    "Clear lungs.",
    "Normal.",
    "Large opacity in the right lung .",
    "No acute abnormality.",
    "small left  pleural effusion",
]

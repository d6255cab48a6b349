"""Metrics as torchmetrics classes, with states and argument checks. The formulas are in ``functional``."""

from rrg_rewards.judges.base import JudgeWarning
from rrg_rewards.metrics.base import ReportMetric
from rrg_rewards.metrics.callable import CallableMetric
from rrg_rewards.metrics.cider import CIDEr
from rrg_rewards.metrics.coco import CocoBLEU, CocoMETEOR, CocoROUGE
from rrg_rewards.metrics.crepe import CREPE, CrepeScores
from rrg_rewards.metrics.crg import LabelScores, ReportCRG
from rrg_rewards.metrics.crg_labels import CRGScore, MultiLevelCRGScore
from rrg_rewards.metrics.crimson import CRIMSON, CrimsonScores
from rrg_rewards.metrics.ct_finebench import CTFineBench, FineBenchScores
from rrg_rewards.metrics.er2score import ER2Score, ER2Scores
from rrg_rewards.metrics.judged import JudgedMetric, JudgedScores
from rrg_rewards.metrics.label_f1 import LabelF1, LabelF1Scores
from rrg_rewards.metrics.labelled import LabelerWarning
from rrg_rewards.metrics.nlg import BLEU, ROUGE, BERTScore, ChrF
from rrg_rewards.metrics.references import score_references
from rrg_rewards.metrics.registry import available_metrics, make_metric
from rrg_rewards.metrics.rexrank import ReXrankBLEU
from rrg_rewards.metrics.scores import Scores

__all__ = [
    "BLEU",
    "CREPE",
    "CRIMSON",
    "ROUGE",
    "BERTScore",
    "CIDEr",
    "CRGScore",
    "CTFineBench",
    "CallableMetric",
    "ChrF",
    "CocoBLEU",
    "CocoMETEOR",
    "CocoROUGE",
    "CrepeScores",
    "CrimsonScores",
    "ER2Score",
    "ER2Scores",
    "FineBenchScores",
    "JudgeWarning",
    "JudgedMetric",
    "JudgedScores",
    "LabelF1",
    "LabelF1Scores",
    "LabelScores",
    "LabelerWarning",
    "MultiLevelCRGScore",
    "ReXrankBLEU",
    "ReportCRG",
    "ReportMetric",
    "Scores",
    "available_metrics",
    "make_metric",
    "score_references",
]

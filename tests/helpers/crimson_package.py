"""A stand-in for the package crimson-score, with its two functions, for where it is not installed."""

import sys
from types import ModuleType


class _Scorer:
    def _chat_completion(self, prompt):
        conversation = [{"role": "system", "content": "Rate."}, {"role": "user", "content": prompt}]
        outputs = self.llm.chat([conversation], sampling_params=self.sampling_params, use_tqdm=False)
        return outputs[0].outputs[0].text


def _build_prompt(reference, predicted, patient_context=None, **options):
    guidelines = "Guideline. " * 1000 if any(options.values()) else ""
    return f"{guidelines}{patient_context}\nReference: {reference}\nCandidate: {predicted}"


def install_stand_in(monkeypatch):
    """Let the import of the package give the stand-in."""
    package, parts = ModuleType("CRIMSON"), ModuleType("CRIMSON.prompt_parts")
    vars(package).update(CRIMSONScore=_Scorer, prompt_parts=parts)
    vars(parts).update(build_prompt=_build_prompt)
    monkeypatch.setitem(sys.modules, "CRIMSON", package)
    monkeypatch.setitem(sys.modules, "CRIMSON.prompt_parts", parts)

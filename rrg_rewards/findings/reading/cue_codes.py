"""The bits of the cues of ``lexicon/cues.yaml`` in the codes of words."""

BOUNDARY, COMMA, JOINT, VERB, PREDICATE, BE, HAVE, EXIST, SHOW, RELATIVE = (1 << i for i in range(10))
NOT, NONE, ENDED, HISTORY, FORMER, CURRENT, OTHER, OPEN, DOUBT, QUERY = (1 << i for i in range(10, 20))
NORMAL, ABNORMAL, PLACE, DEGREE, WITH, SURGERY, PURPOSE, EXCEPT, SAME = (1 << i for i in range(20, 29))
INSIDE, DEFINITE, ARTICLE, EXTENT, SURE = (1 << i for i in range(29, 34))
PERHAPS, SUPPOSED, INSTEAD, REQUEST, UNSTATED, ASKING, WOULD, QUALITY = (1 << i for i in range(34, 42))
UNABLE, CHANGING, TIED, FILLED, LINKING, REASON, REFUTED, THAN, WHETHER = (1 << i for i in range(42, 51))
MEASURE, LASTING, PARTLY, HEDGE, PLURAL, ALIKE, EXCHANGE = (1 << i for i in range(51, 58))
WITHDRAWN, ARRIVED, ALSO, FADED = (1 << i for i in range(58, 62))
# In the order of their bits.
CUES = tuple(name.lower() for name in tuple(globals()) if name.isupper())
CUE_MASK = (1 << len(CUES)) - 1
STATING = VERB | PREDICATE | EXIST | SHOW
DENYING = NOT | NONE | ENDED | FADED
BREAKING = BOUNDARY | COMMA | JOINT

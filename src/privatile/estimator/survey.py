"""What was done about the survey weights of a run's records: all of it is public."""

from dataclasses import dataclass

PROMISED = 1.1
"""Variance over that of Kish's effective number up to which a survey is inside the domain that the docs promise."""


@dataclass(frozen=True)
class Survey:
    """A run over weighted records: its clients are weight classes, each with its share of the total weight."""

    column: str
    """The column of the weights."""
    records: int
    """Records with a weight above 0, those who did not take part included."""
    effective: float
    """Kish's effective number, (Σw)²/Σw²; with weights between clients, the number with the same variance."""
    variance: float
    """The variance of those who took part, over that of the effective number."""
    widest: float
    """The largest ratio of two weights of one class."""
    joined: bool
    """Whether classes had too few records and were joined with their neighbours."""

    @classmethod
    def agreed(cls) -> "Survey":
        """Of a federation: classes and shares are agreed in the study, each site thins by itself."""
        return cls("survey weights", 0, 0.0, 1.0, 1.0, False)

    @property
    def costly(self) -> str:
        """In words, what the thin tail of the weights costs; empty where the variance is as promised.

        >>> Survey("w", 5000, 3500.0, 1.07, 1.2, False).costly
        ''
        >>> print(Survey("w", 5000, 3500.0, 1.16, 2.2, True).costly)
        The survey weights cost more than usual: the variance is 1.16 times that of Kish's effective number, where at
        most 1.1 times is promised. Few records have the largest weights, so that they share a class with lighter ones,
        many of which are left out. The interval holds and is wider. Trimmed weights or more records help.
        """
        if self.variance <= PROMISED:
            return ""
        return (
            f"The survey weights cost more than usual: the variance is {self.variance:.3g} times that of Kish's "
            f"effective number, where at most {PROMISED:g} times is promised. Few records have the largest weights, so "
            "that they share a class with lighter ones, many of which are left out. The interval holds and is wider. "
            "Trimmed weights or more records help."
        )

    def to_text(self, classes: int, asked: int) -> str:
        """What a reader of the result must know.

        >>> Survey("w", 5000, 3500.0, 1.07, 1.2, False).to_text(20, 4300).partition(" Inside")[0]
        'Survey weights: 5,000 records with weights (column w) in 20 classes.'
        >>> [text in Survey("w", 5000, 3500.0, 1.0, 1.0, False).to_text(2, 5000) for text in ("all of them", "others")]
        [True, False]
        """
        if not self.records:
            return (
                "Survey weights: the study has weight classes, each with an agreed share of the total weight. Inside a "
                "class a record takes part with probability weight / largest weight, by a draw of its site that is "
                "made once; the others are not asked and pay nothing. Weights and the sizes of classes are not "
                "protected."
            )
        joined = (
            f" Classes with too few records for every round were joined with their neighbours: weights of one class "
            f"differ by a factor of up to {self.widest:.3g}."
            if self.joined
            else ""
        )
        who = f"{asked:,} take part, the others are not asked and pay nothing"
        who = "here all of them take part" if asked == self.records else who
        return (
            f"Survey weights: {self.records:,} records with weights (column {self.column}) in {classes} classes. "
            "Inside a class a record takes part with probability weight / largest weight, by a draw of its holder that "
            f"is made once; {who}.{joined} The variance is {self.variance:.3g} times that of Kish's "
            f"effective number, {self.effective:,.0f}. Weights and the sizes of classes are not protected."
        )

"""The study file: what is asked, of whom, at what privacy budget. Its digest is what all parties agree on."""

from privatile.federation.study.study import ClientAgreement, FederationStudy, load_study, study_toml

__all__ = ["ClientAgreement", "FederationStudy", "load_study", "study_toml"]

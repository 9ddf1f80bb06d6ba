"""From a run to what somebody deploys: variants, their gate, documents, signature, model repository."""

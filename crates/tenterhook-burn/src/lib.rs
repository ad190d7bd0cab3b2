//! The Burn engine: a Burn model becomes a module that the trainer runs.

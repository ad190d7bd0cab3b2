//! A byte-level language model on any text.

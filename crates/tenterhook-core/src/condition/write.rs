//! From a condition back to a text.

use std::fmt;

use super::{Calculation, Comparison, Condition, Term, Test};

/// As it would be written, with no more parentheses than needed; it reads back as the same.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, 0)
    }
}

impl Test {
    /// How strongly it holds together.
    fn strength(&self) -> u8 {
        match self {
            Test::Either(..) => 1,
            Test::Both(..) => 2,
            Test::Not(_) => 3,
            Test::Compare(..) => 4,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        let strength = self.strength();
        if strength < least {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            Test::Compare(left, comparison, right) => {
                left.write(f, 0)?;
                write!(f, " {comparison} ")?;
                right.write(f, 0)
            }
            Test::Both(left, right) | Test::Either(left, right) => {
                left.write(f, strength)?;
                f.write_str(if strength == 1 { " or " } else { " and " })?;
                right.write(f, strength + 1)
            }
            Test::Not(test) => {
                f.write_str("not ")?;
                test.write(f, strength)
            }
        }
    }
}

impl Term {
    fn strength(&self) -> u8 {
        match self {
            Term::Calculated(_, Calculation::Plus | Calculation::Minus, _) => 1,
            Term::Calculated(..) => 2,
            Term::Minus(_) | Term::Number(_) | Term::Text(_) | Term::Name(_) => 3,
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        let strength = self.strength();
        if strength < least {
            f.write_str("(")?;
            self.write(f, 0)?;
            return f.write_str(")");
        }
        match self {
            Term::Number(number) if number.is_nan() => f.write_str("nan"),
            Term::Number(number) => write!(f, "{}", Plainly(*number)),
            // A text has no more than one kind of quotes in it, or it could not have been written.
            Term::Text(text) if text.contains('"') => write!(f, "'{text}'"),
            Term::Text(text) => write!(f, "\"{text}\""),
            Term::Name(name) => f.write_str(name),
            Term::Minus(term) => {
                f.write_str("-")?;
                term.write(f, strength)
            }
            Term::Calculated(left, calculation, right) => {
                left.write(f, strength)?;
                write!(f, " {calculation} ")?;
                right.write(f, strength + 1)
            }
        }
    }
}

/// A number without a row of zeros.
struct Plainly(f64);

impl fmt::Display for Plainly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        let plain = size == 0.0 || (1e-5..1e16).contains(&size) || size.is_infinite();
        if plain { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
        })
    }
}

impl fmt::Display for Calculation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Calculation::Plus => "+",
            Calculation::Minus => "-",
            Calculation::Times => "*",
            Calculation::Modulo => "%",
        })
    }
}

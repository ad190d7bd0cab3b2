//! Converts a condition back into text.

use std::fmt;

use super::parse::{NOT, SINGLE, Sign};
use super::{Condition, Term, Test};

/// Writes the condition with the necessary parentheses only. Parsing the text returns the same condition.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f, 0)
    }
}

/// A part of a condition. It is written in parentheses if its precedence is less than `least`.
trait Part {
    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result;
}

fn between(
    f: &mut fmt::Formatter<'_>,
    (left, sign, right): (&dyn Part, Sign, &dyn Part),
    least: u8,
) -> fmt::Result {
    let precedence = sign.precedence();
    if precedence < least {
        f.write_str("(")?;
        between(f, (left, sign, right), 0)?;
        return f.write_str(")");
    }
    left.write(f, precedence)?;
    write!(f, " {} ", sign.text())?;
    right.write(f, precedence + 1)
}

impl Part for Test {
    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        match self {
            Test::Compare(left, sign, right) => between(f, (left, Sign::Compare(*sign), right), least),
            Test::Joined(left, logic, right) => between(f, (&**left, Sign::Join(*logic), &**right), least),
            Test::Not(test) => {
                f.write_str("not ")?;
                test.write(f, NOT)
            }
        }
    }
}

impl Part for Term {
    fn write(&self, f: &mut fmt::Formatter<'_>, least: u8) -> fmt::Result {
        match self {
            Term::Number(number) if number.is_nan() => f.write_str("nan"),
            Term::Number(number) => write!(f, "{}", Compact(*number)),
            // A parsed text contains at most one kind of quotes.
            Term::Text(text) if text.contains('"') => write!(f, "'{text}'"),
            Term::Text(text) => write!(f, "\"{text}\""),
            Term::Name(name) => f.write_str(name),
            Term::Minus(term) => {
                f.write_str("-")?;
                term.write(f, SINGLE)
            }
            Term::Calculated(left, sign, right) => {
                between(f, (&**left, Sign::Calculate(*sign), &**right), least)
            }
        }
    }
}

/// A number, in scientific notation if it has many zeros.
struct Compact(f64);

impl fmt::Display for Compact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        let plain = size == 0.0 || (1e-5..1e16).contains(&size) || size.is_infinite();
        if plain { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

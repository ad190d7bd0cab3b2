//! Conditions such as `val/loss < 0.5 and epoch % 5 == 0`, for the key `when` and for filters.
//!
//! | written | means |
//! |---|---|
//! | `val/loss`, `epoch`, `optimizer.lr` | a name: letters and digits, with `_`, `.`, `/`, `-` and `:` inside it |
//! | `3`, `0.5`, `1e-3`, `inf`, `nan` | a number |
//! | `"text"`, `'text'` | text; on the right of a comparison also a bare word that is not a known name |
//! | `<` `<=` `>` `>=` `==` `!=` | comparison, of numbers or of texts |
//! | `+` `-` `*` `%` | arithmetic, with the usual precedence |
//! | `and` `or` `not`, also `&&` `\|\|` `!` | logic, with the usual precedence |
//! | `( )` | parentheses |
//!
//! Because names can contain `/` and `-`, there is no division, and a minus needs spaces around it. A
//! comparison with a name that has no value, or none yet, is false.

mod parse;
#[cfg(test)]
mod tests;
mod write;

use std::cmp::Ordering;

pub use parse::ConditionError;

/// A parsed condition.
///
/// ```
/// use tenterhook_core::condition::{Condition, Operand};
///
/// let condition: Condition = "val/loss < 0.5 and epoch % 5 == 0".parse()?;
/// let known = |name: &str| match name {
///     "epoch" => Some(Operand::Number(10.0)),
///     "val/loss" => Some(Operand::Number(0.4)),
///     _ => None,
/// };
/// assert!(condition.holds(&known));
/// assert!(!condition.holds(&|_| None));
/// assert_eq!(condition.names(), ["val/loss", "epoch"]);
/// # Ok::<(), tenterhook_core::condition::ConditionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Condition(Test);

/// The value of a name in a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A hash such as `blake3:9f2c…` or a commit id. It equals each of its prefixes, with or without the kind
    /// before `:`.
    Hash(String),
}

/// Whether the two sides of a comparison can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparability {
    /// Two numbers, or two texts.
    Comparable,
    /// One side is a number and the other a text that is no number: only `!=` can be true.
    Incomparable,
    /// A side is unknown.
    Unknown,
}

/// The operand that a name is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedWith<'a> {
    /// A text in quotes.
    Text(&'a str),
    /// A bare word: a text, or another name.
    Word(&'a str),
    /// A number or an arithmetic expression.
    Number,
}

/// A logical expression.
#[derive(Clone, Debug)]
enum Test {
    Compare(Term, Comparison, Term),
    Joined(Box<Test>, Logic, Box<Test>),
    Not(Box<Test>),
}

/// An arithmetic expression, a text or a name.
#[derive(Clone, Debug)]
enum Term {
    Number(f64),
    Text(String),
    Name(String),
    Minus(Box<Term>),
    Calculated(Box<Term>, Calculation, Box<Term>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logic {
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calculation {
    Plus,
    Minus,
    Times,
    Modulo,
}

/// Returns the value of a name, if it is known.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<Operand>;

impl Condition {
    /// Evaluates the condition with the current values of its names.
    pub fn holds(&self, lookup: &dyn Fn(&str) -> Option<Operand>) -> bool {
        self.0.holds(lookup)
    }

    /// The names in the condition, each once, in the order in which they are written. A bare word that is
    /// compared with a name, as in `status == completed`, is not included, since it may be text.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (left, _, right) in self.0.compared() {
            left.names(&mut names);
            if !left.has_name() || !matches!(right, Term::Name(_)) {
                right.names(&mut names);
            }
        }
        names
    }

    /// The comparisons as text, and whether the current values of their sides can be compared. A bare word
    /// that is not a known name counts as text.
    pub fn comparisons(&self, lookup: &dyn Fn(&str) -> Option<Operand>) -> Vec<(String, Comparability)> {
        let written = |left, sign, right| Condition(Test::Compare(left, sign, right)).to_string();
        let compared = self.0.compared().into_iter();
        let compared = compared.map(|(left, sign, right)| {
            (written(left.clone(), sign, right.clone()), sides(left, right, lookup))
        });
        compared.collect()
    }

    /// The operands that a name is compared with, in the order in which the comparisons are written.
    #[must_use]
    pub fn compared_with(&self, name: &str) -> Vec<ComparedWith<'_>> {
        let both = self.0.compared().into_iter().flat_map(|(left, _, right)| [(left, right), (right, left)]);
        let of_name = both.filter(|(one, _)| matches!(one, Term::Name(own) if own == name));
        of_name.map(|(_, other)| other.compared()).collect()
    }
}

impl Test {
    fn holds(&self, lookup: Lookup<'_>) -> bool {
        match self {
            Test::Compare(left, comparison, right) => compare(left, *comparison, right, lookup),
            Test::Joined(left, Logic::And, right) => left.holds(lookup) && right.holds(lookup),
            Test::Joined(left, Logic::Or, right) => left.holds(lookup) || right.holds(lookup),
            Test::Not(test) => !test.holds(lookup),
        }
    }

    /// The comparisons, in the order in which they are written.
    fn compared(&self) -> Vec<(&Term, Comparison, &Term)> {
        match self {
            Test::Compare(left, comparison, right) => vec![(left, *comparison, right)],
            Test::Joined(left, _, right) => [left.compared(), right.compared()].concat(),
            Test::Not(test) => test.compared(),
        }
    }
}

fn sides(left: &Term, right: &Term, lookup: Lookup<'_>) -> Comparability {
    let Some(left) = left.value(lookup) else { return Comparability::Unknown };
    let right = match (right.value(lookup), right) {
        (Some(right), _) => right,
        (None, Term::Name(word)) => Operand::Text(word.clone()),
        (None, _) => return Comparability::Unknown,
    };
    let alike = match (&left, &right) {
        (Operand::Number(_), other) | (other, Operand::Number(_)) => other.as_number().is_some(),
        _ => true,
    };
    if alike { Comparability::Comparable } else { Comparability::Incomparable }
}

impl Term {
    fn value(&self, lookup: Lookup<'_>) -> Option<Operand> {
        match self {
            Term::Number(number) => Some(Operand::Number(*number)),
            Term::Text(text) => Some(Operand::Text(text.clone())),
            Term::Name(name) => lookup(name),
            Term::Minus(_) | Term::Calculated(..) => self.number(lookup).map(Operand::Number),
        }
    }

    fn number(&self, lookup: Lookup<'_>) -> Option<f64> {
        match self {
            Term::Minus(term) => Some(-term.number(lookup)?),
            Term::Calculated(left, calculation, right) => {
                Some(calculation.of(left.number(lookup)?, right.number(lookup)?))
            }
            simple => simple.value(lookup)?.as_number(),
        }
    }

    fn compared(&self) -> ComparedWith<'_> {
        match self {
            Term::Text(text) => ComparedWith::Text(text),
            Term::Name(word) => ComparedWith::Word(word),
            Term::Number(_) | Term::Minus(_) | Term::Calculated(..) => ComparedWith::Number,
        }
    }

    fn has_name(&self) -> bool {
        let mut names = Vec::new();
        self.names(&mut names);
        !names.is_empty()
    }

    fn names<'a>(&'a self, names: &mut Vec<&'a str>) {
        match self {
            Term::Name(name) if !names.contains(&name.as_str()) => names.push(name),
            Term::Minus(term) => term.names(names),
            Term::Calculated(left, _, right) => {
                left.names(names);
                right.names(names);
            }
            Term::Number(_) | Term::Text(_) | Term::Name(_) => {}
        }
    }
}

impl Operand {
    /// The value as a number, even if it is a text that contains one.
    fn as_number(&self) -> Option<f64> {
        match self {
            Operand::Number(number) => Some(*number),
            Operand::Text(text) => text.trim().parse().ok(),
            Operand::Hash(_) => None,
        }
    }

    /// The value as a text, if it is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Operand::Number(_) => None,
            Operand::Text(text) | Operand::Hash(text) => Some(text),
        }
    }
}

/// Whether a text is a prefix of a hash, with or without its kind.
fn is_hash_prefix(prefix: &str, hash: &str) -> bool {
    let bare = hash.split_once(':').map_or(hash, |(_, bare)| bare);
    !prefix.is_empty() && (hash.starts_with(prefix) || bare.starts_with(prefix))
}

fn compare(left: &Term, comparison: Comparison, right: &Term, lookup: Lookup<'_>) -> bool {
    let Some(value) = left.value(lookup) else { return false };
    let other = match (right.value(lookup), right, &value) {
        (Some(other), ..) => other,
        // A bare word beside a number is a name that has no value yet.
        (None, Term::Name(word), Operand::Text(_) | Operand::Hash(_)) => Operand::Text(word.clone()),
        (None, ..) => return false,
    };
    let order = match (&value, &other) {
        (Operand::Hash(hash), Operand::Text(text)) | (Operand::Text(text), Operand::Hash(hash))
            if is_hash_prefix(text, hash) =>
        {
            Some(Ordering::Equal)
        }
        (left, right) => match (left.as_text(), right.as_text()) {
            (Some(left), Some(right)) => Some(left.cmp(right)),
            _ => numbers(left, right),
        },
    };
    comparison.is(order)
}

fn numbers(left: &Operand, right: &Operand) -> Option<Ordering> {
    match (left.as_number()?, right.as_number()?) {
        (left, right) if left.is_nan() && right.is_nan() => Some(Ordering::Equal),
        (left, right) => left.partial_cmp(&right),
    }
}

impl Comparison {
    /// Whether the comparison is true for this order. Without an order only `!=` is.
    fn is(self, order: Option<Ordering>) -> bool {
        match self {
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
            Comparison::Equal => order == Some(Ordering::Equal),
            Comparison::NotEqual => order != Some(Ordering::Equal),
        }
    }
}

impl Calculation {
    fn of(self, left: f64, right: f64) -> f64 {
        match self {
            Calculation::Plus => left + right,
            Calculation::Minus => left - right,
            Calculation::Times => left * right,
            // The remainder is never negative.
            Calculation::Modulo => left.rem_euclid(right),
        }
    }
}

/// Conditions are equal if their text is, except for spaces and superfluous parentheses.
impl PartialEq for Condition {
    fn eq(&self, other: &Condition) -> bool {
        self.to_string() == other.to_string()
    }
}

impl serde::Serialize for Condition {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Condition {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Condition, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Condition {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Condition".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A condition, such as \"val/loss < 0.5 and epoch % 5 == 0\".",
            "type": "string",
            // Every condition contains a comparison. The rest of the grammar is not regular.
            "pattern": "[^\\s<>=!]\\s*(<=?|>=?|==|!=)\\s*[^\\s<>=!]",
        })
    }
}

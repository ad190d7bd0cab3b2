//! Parses a condition: splits the text into tokens, then parses them by precedence climbing.

use std::str::FromStr;

use super::{Calculation, Comparison, Condition, Logic, Term, Test};

/// Limits that keep the recursion small enough for any stack.
const MAX_TOKENS: usize = 500;
const MAX_DEPTH: usize = 50;

/// The error for a text that is not a condition, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a condition: {}: {problem}", self.place())]
pub struct ConditionError {
    text: String,
    at: usize,
    problem: String,
}

impl ConditionError {
    /// The position of the error, in characters from 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text[..self.at].chars().count() + 1
    }

    fn place(&self) -> String {
        let rest = &self.text[self.at..];
        if rest.trim().is_empty() {
            return "at its end".to_owned();
        }
        format!("at character {}, `{}`", self.column(), rest.trim_end())
    }
}

const EXAMPLE: &str = "for example, write \"val/loss < 0.5\" or \"epoch % 5 == 0 and step > 100\"";

const ONE_BY_ONE: &str = "compare two things at a time, and join the comparisons with `and`";

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Text(String),
    /// A name or a bare word.
    Word(String),
    Between(Sign),
    Not,
    Open,
    Close,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sign {
    Join(Logic),
    Compare(Comparison),
    Calculate(Calculation),
}

/// The precedence of `not`, and of terms without an operator; [`Sign::precedence`] returns the others.
pub(super) const NOT: u8 = 3;
pub(super) const SINGLE: u8 = 7;

impl Sign {
    /// The precedence of the operator.
    pub(super) fn precedence(self) -> u8 {
        match self {
            Sign::Join(Logic::Or) => 1,
            Sign::Join(Logic::And) => 2,
            Sign::Compare(_) => 4,
            Sign::Calculate(Calculation::Plus | Calculation::Minus) => 5,
            Sign::Calculate(Calculation::Times | Calculation::Modulo) => 6,
        }
    }

    /// The operator as text.
    pub(super) fn text(self) -> &'static str {
        match self {
            Sign::Join(Logic::Or) => "or",
            Sign::Join(Logic::And) => "and",
            sign => {
                let written = SIGNS.iter().find(|(_, token)| *token == Token::Between(sign));
                written.map_or("", |(text, _)| text)
            }
        }
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Condition, ConditionError> {
        let wrong = |(at, problem)| ConditionError { text: text.to_owned(), at, problem };
        let tokens = tokens(text).map_err(wrong)?;
        if tokens.len() > MAX_TOKENS {
            let problem = format!("it is longer than {MAX_TOKENS} words and signs; write a shorter one");
            return Err(wrong((tokens[MAX_TOKENS].0, problem)));
        }
        let mut parser = Parser { tokens, next: 0, end: text.len(), depth: 0 };
        parser.whole().map(Condition).map_err(wrong)
    }
}

/// The byte position of an error, and its message.
type Wrong = (usize, String);

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Wrong> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = token(&text[at..], first).map_err(|problem| (at, problem))?;
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

/// The first token of a text, and its length.
fn token(text: &str, first: char) -> Result<(Token, usize), String> {
    for (sign, token) in SIGNS {
        if text.starts_with(sign) {
            return Ok((token.clone(), sign.len()));
        }
    }
    if first == '"' || first == '\'' {
        let Some(end) = text[1..].find(first) else {
            return Err(format!("the quoted text has no end; close it with {first}"));
        };
        return Ok((Token::Text(text[1..=end].to_owned()), end + 2));
    }
    let word = word(text);
    if word.is_empty() {
        return Err(match first {
            '=' => "to compare, write `==`".to_owned(),
            '&' => "to join two conditions, write `and`".to_owned(),
            '|' => "to join two conditions, write `or`".to_owned(),
            '/' => "there is no division, because `/` belongs to names such as val/loss; multiply".to_owned(),
            other => format!("`{other}` has no meaning in a condition; {EXAMPLE}"),
        });
    }
    let token = match word {
        "and" => Token::Between(Sign::Join(Logic::And)),
        "or" => Token::Between(Sign::Join(Logic::Or)),
        "not" => Token::Not,
        "inf" => Token::Number(f64::INFINITY),
        "nan" => Token::Number(f64::NAN),
        number if number.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            number.replace('_', "").parse().map_or_else(|_| Token::Word(number.to_owned()), Token::Number)
        }
        name => Token::Word(name.to_owned()),
    };
    Ok((token, word.len()))
}

/// Longer signs come before their prefixes.
const SIGNS: &[(&str, Token)] = &[
    ("<=", Token::Between(Sign::Compare(Comparison::LessOrEqual))),
    (">=", Token::Between(Sign::Compare(Comparison::GreaterOrEqual))),
    ("==", Token::Between(Sign::Compare(Comparison::Equal))),
    ("!=", Token::Between(Sign::Compare(Comparison::NotEqual))),
    ("<", Token::Between(Sign::Compare(Comparison::Less))),
    (">", Token::Between(Sign::Compare(Comparison::Greater))),
    ("&&", Token::Between(Sign::Join(Logic::And))),
    ("||", Token::Between(Sign::Join(Logic::Or))),
    ("!", Token::Not),
    ("+", Token::Between(Sign::Calculate(Calculation::Plus))),
    ("-", Token::Between(Sign::Calculate(Calculation::Minus))),
    ("*", Token::Between(Sign::Calculate(Calculation::Times))),
    ("%", Token::Between(Sign::Calculate(Calculation::Modulo))),
    ("(", Token::Open),
    (")", Token::Close),
];

/// The first word of a text: letters and digits, with `_`, `.`, `/`, `-` and `:` inside it.
fn word(text: &str) -> &str {
    let starts = |c: char| c.is_alphanumeric() || c == '_';
    let is_number = text.starts_with('.') && text[1..].starts_with(|c: char| c.is_ascii_digit());
    if !text.starts_with(starts) && !is_number {
        return "";
    }
    let mut end = text.find(|c: char| !starts(c) && !['.', '/', '-', ':'].contains(&c)).unwrap_or(text.len());
    // The sign of an exponent: 1e+3.
    let is_exponent = text[..end].ends_with(['e', 'E']) && text[..end - 1].parse::<f64>().is_ok();
    if is_exponent && text[end..].starts_with('+') {
        let digits = text[end + 1..].find(|c: char| !c.is_ascii_digit());
        end = digits.map_or(text.len(), |digits| end + 1 + digits);
    }
    text[..end].trim_end_matches(['/', '-', '.', ':'])
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// The length of the text.
    end: usize,
    depth: usize,
}

/// A parsed part of a condition.
enum Parsed {
    Test(Test),
    Term(Term),
}

impl Parser {
    fn whole(&mut self) -> Result<Test, Wrong> {
        if self.tokens.is_empty() {
            return Err((0, format!("it is empty; {EXAMPLE}")));
        }
        let parsed = self.part(0)?;
        if self.peek().is_none() {
            return test(0, parsed);
        }
        let problem = match (self.peek(), parsed) {
            (Some(Token::Close), _) => "there is no `(` for this `)`; remove it".to_owned(),
            (Some(Token::Between(Sign::Compare(_))), _) => ONE_BY_ONE.to_owned(),
            (_, Parsed::Test(_)) => {
                "write `and` or `or` in between, or quote a text of several words".to_owned()
            }
            (_, Parsed::Term(_)) => format!("a comparison such as `<` or `==` is expected here; {EXAMPLE}"),
        };
        Err((self.at(), problem))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    /// Parses a part whose operators have at least this precedence.
    fn part(&mut self, least: u8) -> Result<Parsed, Wrong> {
        let at = self.at();
        let (mut left, mut most) = match self.peek() {
            Some(Token::Not) if least <= NOT => {
                self.next += 1;
                let at = self.at();
                let inner = self.deeper(|parser| parser.part(NOT))?;
                (Parsed::Test(Test::Not(Box::new(test(at, inner)?))), NOT - 1)
            }
            _ => (self.single()?, SINGLE),
        };
        while let Some(Token::Between(sign)) = self.peek() {
            let (sign, precedence) = (*sign, sign.precedence());
            if precedence < least || precedence > most {
                break;
            }
            self.next += 1;
            let right_at = self.at();
            let right = self.part(precedence + 1)?;
            left = joined(sign, (at, left), (right_at, right))?;
            // Comparisons cannot be chained.
            most = if matches!(sign, Sign::Compare(_)) { precedence - 1 } else { precedence };
        }
        Ok(left)
    }

    fn single(&mut self) -> Result<Parsed, Wrong> {
        let at = self.at();
        let token = self.peek().cloned();
        self.next += 1;
        match token {
            Some(Token::Number(number)) => Ok(Parsed::Term(Term::Number(number))),
            Some(Token::Text(text)) => Ok(Parsed::Term(Term::Text(text))),
            Some(Token::Word(word)) => Ok(Parsed::Term(Term::Name(word))),
            Some(Token::Between(Sign::Calculate(Calculation::Minus))) => {
                let inner = self.deeper(Parser::single)?;
                Ok(Parsed::Term(match number(at, inner)? {
                    Term::Number(number) => Term::Number(-number),
                    term => Term::Minus(Box::new(term)),
                }))
            }
            Some(Token::Open) => {
                let inner = self.deeper(|parser| parser.part(0))?;
                let problem = match self.peek() {
                    Some(Token::Close) => {
                        self.next += 1;
                        return Ok(inner);
                    }
                    Some(Token::Between(Sign::Compare(_))) => ONE_BY_ONE,
                    _ => "a `)` is missing here",
                };
                Err((self.at(), problem.to_owned()))
            }
            _ => Err((at, format!("a name, a number or a text is expected here; {EXAMPLE}"))),
        }
    }

    fn deeper(&mut self, part: impl FnOnce(&mut Parser) -> Result<Parsed, Wrong>) -> Result<Parsed, Wrong> {
        if self.depth == MAX_DEPTH {
            return Err((self.at(), format!("it is nested more than {MAX_DEPTH} deep; write a simpler one")));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }
}

/// Combines the two sides of an operator, each with its position.
fn joined(sign: Sign, left: (usize, Parsed), right: (usize, Parsed)) -> Result<Parsed, Wrong> {
    Ok(match sign {
        Sign::Join(logic) => {
            let (left, right) = (test(left.0, left.1)?, test(right.0, right.1)?);
            Parsed::Test(Test::Joined(Box::new(left), logic, Box::new(right)))
        }
        Sign::Compare(comparison) => {
            Parsed::Test(Test::Compare(term(left.0, left.1)?, comparison, term(right.0, right.1)?))
        }
        Sign::Calculate(calculation) => {
            let (left, right) = (number(left.0, left.1)?, number(right.0, right.1)?);
            Parsed::Term(Term::Calculated(Box::new(left), calculation, Box::new(right)))
        }
    })
}

fn test(at: usize, parsed: Parsed) -> Result<Test, Wrong> {
    match parsed {
        Parsed::Test(test) => Ok(test),
        Parsed::Term(term) => {
            let shown = match term {
                Term::Name(name) => name,
                _ => "val/loss".to_owned(),
            };
            Err((at, format!("this is compared with nothing; for example, write `{shown} > 0`")))
        }
    }
}

fn term(at: usize, parsed: Parsed) -> Result<Term, Wrong> {
    match parsed {
        Parsed::Term(term) => Ok(term),
        Parsed::Test(_) => {
            Err((at, "this is a condition already; join conditions with `and` or `or`".to_owned()))
        }
    }
}

/// Checks that a part is a term for arithmetic.
fn number(at: usize, parsed: Parsed) -> Result<Term, Wrong> {
    match term(at, parsed)? {
        Term::Text(_) => Err((at, "arithmetic needs numbers; write a number or a name".to_owned())),
        Term::Name(word) if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            Err((at, format!("`{word}` is not a number; write spaces around a minus")))
        }
        term => Ok(term),
    }
}

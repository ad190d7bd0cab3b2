//! From a text to a condition: words first, then what they amount to.

use std::str::FromStr;

use super::{Calculation, Comparison, Condition, Term, Test};

/// More than anybody writes, and few enough for any stack.
const MOST_WORDS: usize = 500;
const DEEPEST: usize = 50;

/// Why a text is not a condition: what is wrong, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a condition: {}: {problem}", self.place())]
pub struct ConditionError {
    text: String,
    at: usize,
    problem: String,
}

impl ConditionError {
    /// Where it is, in characters from 1.
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

const EXAMPLE: &str = "write for example \"val/loss < 0.5\" or \"epoch % 5 == 0 and step > 100\"";

const ONE_BY_ONE: &str = "compare two things at a time, and join the comparisons with `and`";

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(f64),
    Text(String),
    /// A name or a bare word.
    Word(String),
    Compare(Comparison),
    Calculate(Calculation),
    And,
    Or,
    Not,
    Open,
    Close,
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Condition, ConditionError> {
        let wrong = |(at, problem)| ConditionError { text: text.to_owned(), at, problem };
        let tokens = tokens(text).map_err(wrong)?;
        if tokens.len() > MOST_WORDS {
            let problem = format!("it is longer than {MOST_WORDS} words and signs; write a shorter one");
            return Err(wrong((tokens[MOST_WORDS].0, problem)));
        }
        let mut parser = Parser { tokens, next: 0, end: text.len(), depth: 0 };
        parser.whole().map(Condition).map_err(wrong)
    }
}

/// What is wrong, and at which byte.
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

/// The token at the beginning of a text, and its length.
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
        "and" => Token::And,
        "or" => Token::Or,
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

/// Longer signs before those they begin with.
const SIGNS: &[(&str, Token)] = &[
    ("<=", Token::Compare(Comparison::LessOrEqual)),
    (">=", Token::Compare(Comparison::GreaterOrEqual)),
    ("==", Token::Compare(Comparison::Equal)),
    ("!=", Token::Compare(Comparison::NotEqual)),
    ("<", Token::Compare(Comparison::Less)),
    (">", Token::Compare(Comparison::Greater)),
    ("&&", Token::And),
    ("||", Token::Or),
    ("!", Token::Not),
    ("+", Token::Calculate(Calculation::Plus)),
    ("-", Token::Calculate(Calculation::Minus)),
    ("*", Token::Calculate(Calculation::Times)),
    ("%", Token::Calculate(Calculation::Modulo)),
    ("(", Token::Open),
    (")", Token::Close),
];

/// The word at the beginning of a text: letters and digits, with `_`, `.`, `/`, `-` and `:` inside it.
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

/// What stands somewhere: something that holds or not, or something that has a value.
enum Parsed {
    Test(Test),
    Term(Term),
}

impl Parser {
    fn whole(&mut self) -> Result<Test, Wrong> {
        if self.tokens.is_empty() {
            return Err((0, format!("it is empty; {EXAMPLE}")));
        }
        let parsed = self.either()?;
        if self.peek().is_none() {
            return test(0, parsed);
        }
        let problem = match (self.peek(), parsed) {
            (Some(Token::Close), _) => "there is no `(` for this `)`; take it away".to_owned(),
            (Some(Token::Compare(_)), _) => ONE_BY_ONE.to_owned(),
            (_, Parsed::Test(_)) => {
                "write `and` or `or` in between, or quote a text of several words".to_owned()
            }
            (_, Parsed::Term(_)) => format!("a comparison such as `<` or `==` should stand here; {EXAMPLE}"),
        };
        Err((self.at(), problem))
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn takes(&mut self, token: &Token) -> bool {
        let is_next = self.peek() == Some(token);
        self.next += usize::from(is_next);
        is_next
    }

    fn either(&mut self) -> Result<Parsed, Wrong> {
        self.joined(&Token::Or, Parser::both, Test::Either)
    }

    fn both(&mut self) -> Result<Parsed, Wrong> {
        self.joined(&Token::And, Parser::negated, Test::Both)
    }

    fn joined(
        &mut self,
        by: &Token,
        part: fn(&mut Parser) -> Result<Parsed, Wrong>,
        join: fn(Box<Test>, Box<Test>) -> Test,
    ) -> Result<Parsed, Wrong> {
        let at = self.at();
        let mut left = part(self)?;
        while self.takes(by) {
            let right_at = self.at();
            let right = part(self)?;
            left = Parsed::Test(join(Box::new(test(at, left)?), Box::new(test(right_at, right)?)));
        }
        Ok(left)
    }

    fn negated(&mut self) -> Result<Parsed, Wrong> {
        if !self.takes(&Token::Not) {
            return self.comparison();
        }
        let at = self.at();
        let inner = self.deeper(Parser::negated)?;
        Ok(Parsed::Test(Test::Not(Box::new(test(at, inner)?))))
    }

    fn comparison(&mut self) -> Result<Parsed, Wrong> {
        let at = self.at();
        let left = self.sum()?;
        let Some(Token::Compare(comparison)) = self.peek().cloned() else { return Ok(left) };
        let left = term(at, left)?;
        self.next += 1;
        let right_at = self.at();
        let right = self.sum()?;
        Ok(Parsed::Test(Test::Compare(left, comparison, term(right_at, right)?)))
    }

    fn sum(&mut self) -> Result<Parsed, Wrong> {
        self.calculated(&[Calculation::Plus, Calculation::Minus], Parser::product)
    }

    fn product(&mut self) -> Result<Parsed, Wrong> {
        self.calculated(&[Calculation::Times, Calculation::Modulo], Parser::single)
    }

    fn calculated(
        &mut self,
        with: &[Calculation],
        part: fn(&mut Parser) -> Result<Parsed, Wrong>,
    ) -> Result<Parsed, Wrong> {
        let at = self.at();
        let mut left = part(self)?;
        while let Some(Token::Calculate(calculation)) = self.peek().cloned() {
            if !with.contains(&calculation) {
                break;
            }
            self.next += 1;
            let right_at = self.at();
            let right = part(self)?;
            let (left_term, right) = (number(at, left)?, number(right_at, right)?);
            left = Parsed::Term(Term::Calculated(Box::new(left_term), calculation, Box::new(right)));
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
            Some(Token::Calculate(Calculation::Minus)) => {
                let inner = self.deeper(Parser::single)?;
                Ok(Parsed::Term(match number(at, inner)? {
                    Term::Number(number) => Term::Number(-number),
                    term => Term::Minus(Box::new(term)),
                }))
            }
            Some(Token::Open) => {
                let inner = self.deeper(Parser::either)?;
                if self.takes(&Token::Close) {
                    return Ok(inner);
                }
                let chained = matches!(self.peek(), Some(Token::Compare(_)));
                Err((self.at(), if chained { ONE_BY_ONE } else { "a `)` is missing here" }.to_owned()))
            }
            _ => Err((at, format!("a name, a number or a text should stand here; {EXAMPLE}"))),
        }
    }

    fn deeper(&mut self, part: fn(&mut Parser) -> Result<Parsed, Wrong>) -> Result<Parsed, Wrong> {
        if self.depth == DEEPEST {
            return Err((self.at(), format!("it is nested more than {DEEPEST} deep; write a simpler one")));
        }
        self.depth += 1;
        let parsed = part(self);
        self.depth -= 1;
        parsed
    }
}

fn test(at: usize, parsed: Parsed) -> Result<Test, Wrong> {
    match parsed {
        Parsed::Test(test) => Ok(test),
        Parsed::Term(term) => {
            let shown = match term {
                Term::Name(name) => name,
                _ => "val/loss".to_owned(),
            };
            Err((at, format!("this is compared with nothing; write for example `{shown} > 0`")))
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

/// A term to calculate with.
fn number(at: usize, parsed: Parsed) -> Result<Term, Wrong> {
    match term(at, parsed)? {
        Term::Text(_) => Err((at, "a text cannot be calculated with; write a number or a name".to_owned())),
        Term::Name(word) if word.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
            Err((at, format!("`{word}` is not a number; write spaces around a minus")))
        }
        term => Ok(term),
    }
}

//! Almost valid inputs: bytes with a few edits, and JSON with other values.

use serde_json::{Map, Value, json};

/// A reproducible random number generator (`SplitMix64`).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not 0.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Texts that often break parsers: extreme numbers, other types, brackets, control characters.
const WORDS: &[&str] = &[
    "0",
    "-1",
    "1",
    "9223372036854775807",
    "18446744073709551616",
    "-9223372036854775809",
    "1e400",
    "1e-400",
    "nan",
    "inf",
    "-0.0",
    "\"\"",
    "\"",
    "'",
    "[",
    "]",
    "{",
    "}",
    "[[",
    "]]",
    "=",
    ",",
    ":",
    ".",
    "#",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{1b}[31m",
    "\u{feff}",
    "\u{202e}",
    "é",
    "🦀",
    "true",
    "null",
    "\\",
    "\\u0000",
    "*",
    "**",
    "?",
    "%",
    "{}",
    "{step:",
    ":>99999999}",
    "and",
    "(",
];

/// Applies one to eight edits to an input, some with parts of another input.
pub(super) fn bytes(rng: &mut Rng, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=rng.below(8) {
        let at = rng.below(out.len() + 1);
        let end = (at + 1 + rng.below(16)).min(out.len());
        match rng.below(9) {
            0 if at < out.len() => out[at] ^= 1 << rng.below(8),
            1 => drop(out.drain(at..end)),
            2 => {
                let part = out[at..end].to_vec();
                out.splice(at..at, part);
            }
            3 => out.truncate(at),
            4 if !other.is_empty() => {
                let from = rng.below(other.len());
                let part = other[from..(from + 1 + rng.below(64)).min(other.len())].to_vec();
                out.splice(at..end, part);
            }
            5 => {
                let digits = |byte: &u8| byte.is_ascii_digit();
                if let Some(start) = out.iter().skip(at).position(digits).map(|found| at + found) {
                    let length = out[start..].iter().take_while(|byte| digits(byte)).count();
                    let word = rng.pick(&WORDS[..12]).bytes().collect::<Vec<_>>();
                    out.splice(start..start + length, word);
                }
            }
            6 => drop(
                out.splice(at..at, (0..rng.below(8)).map(|_| (rng.next() & 255) as u8).collect::<Vec<_>>()),
            ),
            7 if !words.is_empty() => drop(out.splice(at..end, rng.pick(words).bytes())),
            _ => drop(out.splice(at..at, rng.pick(WORDS).bytes())),
        }
    }
    out
}

/// Replaces, removes or duplicates one to three nodes of a document.
pub(super) fn document(rng: &mut Rng, document: &Value) -> Value {
    let mut out = document.clone();
    for _ in 0..=rng.below(3) {
        let chosen = rng.below(nodes(&out));
        let donor = nth(&out, rng.below(nodes(&out))).clone();
        edit(&mut out, &mut (chosen + 1), rng, &donor);
    }
    out
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum::<usize>(),
        _ => 0,
    }
}

fn nth(value: &Value, n: usize) -> &Value {
    let mut left = n;
    let mut here = value;
    while left > 0 {
        left -= 1;
        let children: Vec<&Value> = match here {
            Value::Array(items) => items.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => return here,
        };
        for child in children {
            let size = nodes(child);
            if left < size {
                here = child;
                break;
            }
            left -= size;
        }
    }
    here
}

/// Decrements `left` to the chosen node, and edits that node in place.
fn edit(value: &mut Value, left: &mut usize, rng: &mut Rng, donor: &Value) {
    *left -= 1;
    if *left == 0 {
        *value = other(rng, value, donor);
        return;
    }
    match value {
        Value::Array(items) => {
            for index in 0..items.len() {
                edit(&mut items[index], left, rng, donor);
                if *left == 0 {
                    match rng.below(8) {
                        0 => drop(items.remove(index)),
                        1 => items.insert(index, items[index].clone()),
                        _ => {}
                    }
                    *left = usize::MAX;
                }
                if *left > usize::MAX / 2 {
                    return;
                }
            }
        }
        Value::Object(map) => {
            let keys: Vec<String> = map.keys().cloned().collect();
            for key in keys {
                if let Some(inner) = map.get_mut(&key) {
                    edit(inner, left, rng, donor);
                }
                if *left == 0 {
                    if rng.below(5) == 0 {
                        map.remove(&key);
                    }
                    *left = usize::MAX;
                }
                if *left > usize::MAX / 2 {
                    return;
                }
            }
        }
        _ => {}
    }
}

fn other(rng: &mut Rng, value: &Value, donor: &Value) -> Value {
    let extreme = [
        json!(0),
        json!(-1),
        json!(1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(1e308),
        json!(-0.5),
        json!(""),
        json!("x"),
        json!("é\u{1b}[31m"),
        json!("x".repeat(300)),
        json!(true),
        json!(false),
        Value::Null,
        json!([]),
        json!({}),
        json!([[]]),
        json!([0, 0]),
        Value::Object(Map::new()),
    ];
    match (rng.below(4), value) {
        (0, _) => donor.clone(),
        (1, Value::Number(number)) => match number.as_u64() {
            Some(number) => json!(number.wrapping_add(1)),
            None => json!(number.as_f64().unwrap_or(0.0) * -2.0),
        },
        (1, Value::Bool(is)) => json!(!is),
        (1, Value::String(text)) => json!(text.chars().skip(1).collect::<String>()),
        _ => rng.pick(&extreme).clone(),
    }
}

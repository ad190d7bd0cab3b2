use proptest::prelude::*;

use super::*;

fn known(name: &str) -> Option<Operand> {
    let number = match name {
        "epoch" => 10.0,
        "step" => 250.0,
        "val/loss" => 0.4,
        "optimizer.lr" => 1e-3,
        "val/top-5" => 0.9,
        "diverged" => f64::NAN,
        "_x" => -3.0,
        "status" => return Some(Operand::Text("completed".into())),
        "created" => return Some(Operand::Text("2026-03-01T10:00:00Z".into())),
        "seed" => return Some(Operand::Text("42".into())),
        "config_hash" => return Some(Operand::Hash("blake3:9f2c77".into())),
        "commit" => return Some(Operand::Hash("1e5aabbc".into())),
        _ => return None,
    };
    Some(Operand::Number(number))
}

fn condition(text: &str) -> Condition {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn conditions_are_evaluated() {
    for (text, holds) in [
        ("val/loss < 0.5", true),
        ("val/loss<0.5", true),
        ("val/loss >= .5", false),
        ("epoch % 5 == 0 and step > 1_00", true),
        ("epoch % 5 == 0 && step > 1e+3", false),
        ("epoch == 1 or epoch == 10", true),
        ("epoch == 1 || epoch == 2", false),
        ("not epoch == 10", false),
        ("!(epoch == 1)", true),
        // `and` binds more tightly than `or`, `not` than both, `*` and `%` than `+` and `-`.
        ("epoch == 10 or epoch == 1 and epoch == 2", true),
        ("(epoch == 10 or epoch == 1) and epoch == 2", false),
        ("not epoch == 1 and epoch == 10", true),
        ("epoch + 2 * 3 == 16", true),
        ("(epoch + 2) * 3 == 36", true),
        ("epoch - 3 - 2 == 5", true),
        ("epoch - (3 - 2) == 9", true),
        ("-epoch == -10 and _x == -3", true),
        ("_x % 5 == 2", true),
        ("optimizer.lr <= 1e-3", true),
        ("val/top-5 > 0.8", true),
        ("5 < epoch", true),
        ("diverged == nan and not diverged < 0 and not diverged >= 0", true),
        ("step < inf and step > -inf", true),
    ] {
        assert_eq!(condition(text).holds(&known), holds, "{text}");
    }
}

#[test]
fn a_text_is_compared_with_a_text_and_need_not_be_quoted_on_the_right() {
    for (text, holds) in [
        ("status == completed", true),
        ("status == 'completed'", true),
        ("status != \"early stop\"", true),
        ("status == epoch", false),
        ("created > 2026-01-01 and created < 2026-12-31", true),
        ("created < 2026-01-01", false),
        ("seed == 42 and seed < 43 and seed + 1 == 43", true),
        ("status < 3", false),
        ("status != 3", true),
        ("status + 1 == 2", false),
    ] {
        assert_eq!(condition(text).holds(&known), holds, "{text}");
    }
}

#[test]
fn a_hash_equals_each_of_its_prefixes() {
    for (text, holds) in [
        ("config_hash == blake3:9f2c77", true),
        ("config_hash == blake3:9f", true),
        ("config_hash == 9f2c", true),
        ("blake3:9f == config_hash", false),
        ("'blake3:9f' == config_hash", true),
        ("config_hash != blake3:9f", false),
        ("config_hash == blake3:af", false),
        ("config_hash == 2c77", false),
        ("config_hash == ''", false),
        ("config_hash > blake3:8 and config_hash < blake3:a", true),
        ("commit == '1e5'", true),
        ("commit == 1e5", false),
        ("created > 2026-03-01T09:59:00Z", true),
    ] {
        assert_eq!(condition(text).holds(&known), holds, "{text}");
    }
}

#[test]
fn incomparable_sides_are_reported() {
    for (text, expected) in [
        ("status == 3", Comparability::Incomparable),
        ("3 == status", Comparability::Incomparable),
        ("val/loss < low", Comparability::Incomparable),
        ("commit == 12", Comparability::Incomparable),
        ("status == completed", Comparability::Comparable),
        ("seed == 42", Comparability::Comparable),
        ("config_hash == blake3:9f", Comparability::Comparable),
        ("val/loss < epoch", Comparability::Comparable),
        ("lost < 3", Comparability::Unknown),
        ("epoch < lost + 1", Comparability::Unknown),
    ] {
        assert_eq!(condition(text).comparisons(&known), [(text.to_owned(), expected)]);
    }
    let several = condition("not (epoch == 1 or status > 2) and step < 3").comparisons(&known);
    let several: Vec<_> = several.iter().map(|(text, sides)| (text.as_str(), *sides)).collect();
    assert_eq!(
        several,
        [
            ("epoch == 1", Comparability::Comparable),
            ("status > 2", Comparability::Incomparable),
            ("step < 3", Comparability::Comparable)
        ]
    );
}

#[test]
fn a_comparison_with_an_unknown_name_is_false() {
    for comparison in ["<", "<=", ">", ">=", "==", "!="] {
        for text in [format!("lost {comparison} 1"), format!("epoch {comparison} lost")] {
            assert!(!condition(&text).holds(&known), "{text}");
        }
    }
    assert!(!condition("lost + 1 > 0").holds(&known));
    assert!(!condition("epoch > lost * 0").holds(&known));
    assert!(condition("not lost > 0").holds(&known));
    assert!(condition("lost > 0 or epoch > 0").holds(&known));
}

#[test]
fn names_lists_the_names_of_a_condition() {
    let names = |text| condition(text).names().into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names("b > 1 and (a + b < 3 or not c == 'x')"), ["b", "a", "c"]);
    assert_eq!(names("status == completed"), ["status"]);
    assert_eq!(names("status == completed and status != failed"), ["status"]);
    assert_eq!(names("5 < epoch"), ["epoch"]);
    assert_eq!(names("a < b * 2"), ["a", "b"]);
}

#[test]
fn an_invalid_condition_is_an_error_with_position_and_fix() {
    for (text, column, hint) in [
        ("", 1, "it is empty; for example, write"),
        ("epoch", 1, "`epoch > 0`"),
        ("not 3", 5, "compared with nothing"),
        ("epoch > 1 and step", 15, "`step > 0`"),
        ("epoch = 3", 7, "write `==`"),
        ("epoch == 3 & step > 1", 12, "write `and`"),
        ("epoch == 3 | step > 1", 12, "write `or`"),
        ("epoch / 2 > 1", 7, "no division"),
        ("epoch >", 8, "a name, a number or a text"),
        ("epoch > > 3", 9, "a name, a number or a text"),
        ("1 < epoch < 5", 11, "two things at a time"),
        ("(1 < epoch < 5)", 12, "two things at a time"),
        ("(epoch > 1", 11, "a `)` is missing"),
        ("epoch > 1)", 10, "no `(` for this `)`"),
        ("epoch 5", 7, "a comparison such as"),
        ("status == early stop", 17, "quote a text of several words"),
        ("status == 'done", 11, "close it with '"),
        ("status + 'x' == 3", 10, "arithmetic needs numbers"),
        ("epoch % 10-3 == 0", 9, "spaces around a minus"),
        ("(epoch > 1) + 2 > 3", 1, "a condition already"),
        ("überlänge ? 3", 11, "`?` has no meaning"),
    ] {
        let error = text.parse::<Condition>().expect_err(text);
        assert_eq!(error.column(), column, "{error}");
        assert!(error.to_string().contains(hint), "{error}");
    }
    let error = "epoch = 3".parse::<Condition>().expect_err("no condition");
    let said = "`epoch = 3` is not a condition: at character 7, `= 3`: to compare, write `==`";
    assert_eq!(error.to_string(), said);
}

#[test]
fn too_long_or_too_deep_conditions_are_refused_without_a_stack_overflow() {
    let deep = format!("{}epoch > 1{}", "(".repeat(100_000), ")".repeat(100_000));
    let long = format!("epoch > 1{}", " + 1".repeat(100_000));
    for text in [deep, long, "not ".repeat(400) + "epoch > 1", "-".repeat(400) + "epoch > 1"] {
        let error = text.parse::<Condition>().expect_err("too much").to_string();
        assert!(error.contains("deep") || error.contains("longer"), "{}", &error[error.len() - 80..]);
    }
}

#[test]
fn spaces_and_superfluous_parentheses_make_no_difference() {
    assert_eq!(condition("((epoch>1))and not(step<=2)"), condition("epoch > 1 && !(step <= 2)"));
    assert_eq!(condition("((epoch>1))and not(step<=2)").to_string(), "epoch > 1 and not step <= 2");
    assert_ne!(condition("a - (b - c) > 0"), condition("a - b - c > 0"));
    assert_eq!(condition("x == nan"), condition("x == nan"));
    let read: Condition = serde_json::from_str("\"epoch>1\"").expect("it reads");
    assert_eq!(serde_json::to_string(&read).expect("it writes"), "\"epoch > 1\"");
}

fn any_term() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("epoch".to_owned()),
        Just("val/loss".to_owned()),
        Just("lost".to_owned()),
        any::<f64>().prop_map(|number| format!("{number:?}").to_lowercase()),
        (0u32..20).prop_map(|number| number.to_string()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        let sign = prop::sample::select(vec!["+", "-", "*", "%"]);
        prop_oneof![
            (inner.clone(), sign, inner.clone()).prop_map(|(a, sign, b)| format!("({a} {sign} {b})")),
            inner.prop_map(|a| format!("-{a}")),
        ]
    })
}

fn any_condition() -> impl Strategy<Value = String> {
    let sign = prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
    let leaf = (any_term(), sign, any_term()).prop_map(|(a, sign, b)| format!("{a} {sign} {b}"));
    leaf.prop_recursive(4, 16, 2, |inner| {
        let word = prop::sample::select(vec!["and", "or", "&&", "||"]);
        prop_oneof![
            (inner.clone(), word, inner.clone()).prop_map(|(a, word, b)| format!("({a}) {word} ({b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

proptest! {
    #[test]
    fn a_condition_reads_back_as_it_is_written(text in any_condition()) {
        let first = condition(&text);
        let again = condition(&first.to_string());
        prop_assert_eq!(&first, &again);
        prop_assert_eq!(first.holds(&known), again.holds(&known));
    }

    #[test]
    fn logic_is_logic(a in any_condition(), b in any_condition()) {
        let (left, right) = (condition(&a).holds(&known), condition(&b).holds(&known));
        prop_assert_eq!(condition(&format!("({a}) and ({b})")).holds(&known), left && right);
        prop_assert_eq!(condition(&format!("({a}) or ({b})")).holds(&known), left || right);
        prop_assert_eq!(condition(&format!("not ({a})")).holds(&known), !left);
    }

    #[test]
    fn any_text_is_a_condition_or_an_error_within_it(text in "[ a-z0-9<>=!%&|()+*/.'\"_ü-]{0,40}") {
        if let Err(error) = text.parse::<Condition>() {
            prop_assert!(error.column() <= text.chars().count() + 1);
        }
    }
}

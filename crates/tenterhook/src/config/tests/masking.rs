//! A secret in a wrong place is not shown.

use super::resolve_with;
use crate::registry::Registry;

/// Secrets of several kinds: an address, a token, a password.
const SECRETS: [&str; 4] = [
    "https://hooks.example/services/T0K3N/B0/s3cr3t",
    "https://me:s3cr3t@hooks.example",
    "xoxb-17653672481-s3cr3tKVeTuEk8sAOeXDBwXs",
    "s3cr3t!",
];

#[test]
fn a_secret_in_a_wrong_place_is_not_shown() {
    let registry = Registry::default();
    let error = |file: &str, environment: &[(&str, &str)], sets: &[&str]| {
        let resolved = resolve_with(&registry, file, environment, sets);
        resolved.map(|resolved| resolved.to_toml()).expect_err("it is wrong")
    };
    let hook = |name: &str, rest: &str| format!("[[hooks]]\nuse = \"{name}\"\n{rest}\n");
    for secret in SECRETS {
        let text = format!("\"{secret}\"");
        let mut files = vec![
            // Under a key that does not exist, or of another type.
            hook("heartbeat", &format!("interval = {text}")),
            hook("heartbeat", &format!("url_env = {text}")),
            hook("heartbeat", &format!("url_env = [{text}]")),
            hook("console", &format!("token = {text}")),
            // In a misspelt table, in a list, in one line with another mistake.
            hook("notfy", &format!("url_env = {text}")),
            format!("[[hoks]]\nurl = {text}\n"),
            format!("hooks = [{{ use = \"notfy\", url = {text} }}]\n"),
            format!("hooks = [{{ use = \"notfy\", webhok = {text}, note = [{text}] }}]\n"),
            format!("[optimizer]\nuse = \"adam\"\nkind = {text}\n"),
            format!("device = 1 # {}\n", SECRETS[0]),
            // In a line that does not parse.
            format!("x = {secret}\n"),
            format!("x = \"{secret}\n"),
            format!("x = 1 \"{secret}\"\n"),
            format!("x = {text}\nx = {text}\n"),
            format!("[a]\nb = {text}\n[a]\n"),
        ];
        for name in ["notify", "heartbeat", "upload"] {
            files.push(hook(name, &format!("url = {text}")));
            files.push(hook(name, &format!("webhok = {text}")));
            files.push(hook(name, &format!("retries = {text}\nto = 7")));
        }
        if secret.contains("://") {
            files.push(hook("upload", &format!("to = {text}")));
        }
        for file in files {
            let error = error(&file, &[], &[]);
            assert!(!error.contains("s3cr3t") && !error.contains("T0K3N"), "{file}\n{error}");
        }
        let heartbeat = hook("heartbeat", "file = \"beat\"");
        for key in ["url", "interval", "url_env", "tiemout", "retries"] {
            let set = format!("hooks.heartbeat.{key}={secret}");
            let variable = format!("TENTER__HOOKS__HEARTBEAT__{}", key.to_uppercase());
            for error in [error(&heartbeat, &[], &[&set]), error(&heartbeat, &[(&variable, secret)], &[])] {
                assert!(!error.contains("s3cr3t") && !error.contains("T0K3N"), "{key}: {error}");
                assert!(error.to_lowercase().contains(key), "{error}");
            }
        }
        for set in [format!("hooks.9.url={secret}"), format!("hooks.nobody.x={secret}"), secret.to_owned()] {
            let error = error(&heartbeat, &[], &[&set]);
            assert!(secret == set || !error.contains("s3cr3t"), "{error}");
        }
    }
}

#[test]
fn harmless_values_are_shown_with_their_place() {
    use super::error;
    let shown = error("[trainer]\nmax_epochs = \"many\"\nmonitr = \"val/loss\"\n", &[], &["device=7"]);
    for hint in ["max_epochs = \"many\"", "monitr = \"val/loss\"", "--set device=7"] {
        assert!(shown.contains(hint), "{shown}");
    }
    let shown =
        error("hooks = [{ use = \"early_stoping9\", monitor = \"val/loss2\", wrong = 1 }]\n", &[], &[]);
    assert!(shown.contains("use = \"early_stoping9\", monitor = \"***\""), "{shown}");
}

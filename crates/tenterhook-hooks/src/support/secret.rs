//! Secrets, such as the address of a webhook.

use tenterhook_core::{Effect, HookResult, OptionError, Setup};
use ureq::http::Uri;

/// A text that is never shown: its `Debug` form is `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A secret with this text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// Rejects a value that is not the name of an environment variable. The message omits it, since it may be the secret.
pub(crate) fn check_variable(key: &str, variable: &str, example: &str) -> Result<(), OptionError> {
    let fits = |(at, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || at > 0 && c.is_ascii_digit();
    if !variable.is_empty() && variable.chars().enumerate().all(fits) {
        return Ok(());
    }
    Err(OptionError::new(
        key,
        format!("`{key}` must be the name of an environment variable, such as \"{example}\""),
    )
    .fix("put the address itself into that variable"))
}

/// The address that a hook sends requests to: given by the program, or in an environment variable.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    pub(crate) given: Option<Secret>,
    /// The address of this call, found at `setup`.
    pub(crate) address: Option<Secret>,
}

impl Endpoint {
    /// At `setup`: finds the address, unless this is a dry run.
    pub(crate) fn find(&mut self, cx: &Setup<'_>, variable: Option<&str>) -> HookResult {
        if cx.run.effect_permit().is_none() {
            return Ok(());
        }
        self.address = None;
        self.address = match (&self.given, variable) {
            (Some(given), _) if is_address(given) => Some(given.clone()),
            (Some(_), _) => {
                return Err("the given address is not valid; an address begins with https://".into());
            }
            (None, Some(variable)) => Some(address(variable)?),
            (None, None) => None,
        };
        Ok(())
    }

    /// The name of the address in messages.
    pub(crate) fn label(&self, variable: Option<&str>) -> String {
        match (&self.given, variable) {
            (None, Some(variable)) => format!("the address in `{variable}`"),
            _ => "the given address".to_owned(),
        }
    }
}

/// The address in an environment variable.
fn address(variable: &str) -> HookResult<Secret> {
    let Some(text) = std::env::var_os(variable) else {
        return Err(format!(
            "the environment variable `{variable}` is not set; put the address into it (export {variable}=https://…), \
             or remove the hook"
        )
        .into());
    };
    let secret = text.to_str().map(|text| Secret::new(text.trim())).filter(is_address);
    Ok(secret.ok_or_else(|| {
        format!(
            "the environment variable `{variable}` holds no valid address; write the whole address, with https:// \
             (export {variable}=https://…)"
        )
    })?)
}

/// The effect of requests to the address in an environment variable.
pub(crate) fn effect(variable: &str) -> Effect {
    Effect::Request(format!("the address in ${variable}"))
}

/// Whether it is a URL with a scheme and a host.
fn is_address(secret: &Secret) -> bool {
    let uri: Option<Uri> = secret.reveal().parse().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new("https://host/token");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
        assert_eq!(secret.reveal(), "https://host/token");
    }

    #[test]
    fn a_variable_has_a_name_and_an_address_in_its_place_is_not_repeated() {
        for name in ["SLACK_URL", "a", "_x9"] {
            assert_eq!(check_variable("url_env", name, "SLACK_URL"), Ok(()));
        }
        for name in ["", "9x", "A B", "A=B"] {
            let error = check_variable("url_env", name, "SLACK_URL").expect_err(name).to_string();
            assert!(error.starts_with("`url_env` must be the name of an environment variable"), "{error}");
        }
        let error =
            check_variable("url_env", "https://hooks.example/T0K3N", "SLACK_URL").expect_err("an address");
        let error = error.to_string();
        assert!(
            error.starts_with("`url_env` must be the name") && error.contains("\"SLACK_URL\""),
            "{error}"
        );
        assert!(!error.contains("T0K3N"), "{error}");
    }

    #[test]
    fn an_address_has_a_supported_scheme_and_a_host() {
        for address in ["http://127.0.0.1:9/x?y=z", "https://hooks.example/services/T/B"] {
            assert!(is_address(&Secret::new(address)), "{address}");
        }
        for other in [
            "",
            "hooks.example/services",
            "/services",
            "ftp://host/x",
            "https://",
            "http://a b/",
            "file:///x",
        ] {
            assert!(!is_address(&Secret::new(other)), "{other}");
        }
    }

    #[test]
    fn a_variable_that_is_missing_or_holds_no_address_is_named_and_not_shown() {
        let error = address("TENTERHOOK_NEVER_SET").expect_err("it is not set").to_string();
        assert!(error.contains("`TENTERHOOK_NEVER_SET` is not set") && error.contains("export"), "{error}");
        // This variable is always set, and is not an address.
        let error = address("PATH").expect_err("no address").to_string();
        assert!(error.contains("`PATH` holds no valid address"), "{error}");
        assert!(!error.contains(&std::env::var("PATH").expect("it is set")), "{error}");
    }
}

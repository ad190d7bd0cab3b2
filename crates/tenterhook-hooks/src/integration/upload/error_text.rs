//! Error messages of uploads, with a fix and without secrets.
//!
//! A response may repeat parts of the request, so only its status and error code are shown. Secrets of the environment are
//! masked in all other texts.

use std::error::Error;

use object_store::client::{HttpError, HttpErrorKind};

use super::copy::CopyError;
use super::destination::{RequestLimits, Variables};

/// The metadata service of clouds, which provides a role's credentials if the environment has none.
const METADATA: &str = "169.254.169.254";

/// The cause and the fix of an error.
pub(super) fn error_text(error: &CopyError, limits: RequestLimits, variables: &Variables) -> String {
    let text = match error {
        CopyError::Source(error) => format!("it cannot be read: {error}"),
        CopyError::Damaged(file) => format!(
            "{file} does not match its manifest; see `tenter checkpoints verify`, and remove the checkpoint"
        ),
        CopyError::Store(error) if has_no_credentials(error, variables) => {
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your storage needs \
             instead"
            .to_owned()
        }
        CopyError::Store(error) => store_error_text(error, limits),
    };
    without_secrets(text, variables)
}

/// Whether a request for credentials to the metadata service failed.
fn has_no_credentials(error: &object_store::Error, variables: &Variables) -> bool {
    let text = error.to_string();
    let service = variables.iter().find(|(name, value)| name == "AWS_METADATA_ENDPOINT" && !value.is_empty());
    text.contains(service.map_or(METADATA, |(_, address)| address))
}

/// Whether the error of a request for a key that may be missing shows that uploads cannot work.
pub(super) fn prevents_uploads(error: &object_store::Error) -> bool {
    let code = status(&error.to_string()).and_then(|answer| answer.code);
    match error {
        object_store::Error::NotFound { .. } => {
            matches!(code.as_deref(), Some("NoSuchBucket" | "ContainerNotFound"))
        }
        // Credentials with write but no list permission get these errors for missing keys.
        object_store::Error::PermissionDenied { .. } => {
            !matches!(code.as_deref(), None | Some("AccessDenied" | "AuthorizationPermissionMismatch"))
        }
        _ => true,
    }
}

fn store_error_text(error: &object_store::Error, limits: RequestLimits) -> String {
    let tries = limits.retries + 1;
    let text = error.to_string();
    if text.contains("redirect without LOCATION") {
        return "the bucket is in another region; set AWS_REGION".to_owned();
    }
    let http = chain(error).find_map(|error| error.downcast_ref::<HttpError>()).map(HttpError::kind);
    match (http, status(&text)) {
        (Some(HttpErrorKind::Timeout), _) => format!(
            "the storage did not answer within {:?}, {tries} times; check that it can be reached, or raise `timeout`",
            limits.timeout
        ),
        (Some(HttpErrorKind::Connect), _) => format!(
            "the storage cannot be reached, tried {tries} times ({}); check AWS_ENDPOINT_URL and the network",
            innermost(error)
        ),
        (Some(_), _) => format!("the connection broke, {tries} times ({})", innermost(error)),
        (None, Some(answer)) => answer_text(&answer, tries),
        (None, None) => innermost(error),
    }
}

fn answer_text(answer: &Answer, tries: usize) -> String {
    match answer.status {
        401 | 403 => format!(
            "the storage refused it with {answer}; check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
             AWS_SESSION_TOKEN, and that they may get, put and delete there"
        ),
        404 => format!("the storage answered {answer}; create the bucket, or correct `to`"),
        408 | 429 | 500.. => {
            format!("the storage answered {answer}, {tries} times; raise `retries` if it often does")
        }
        _ => format!("the storage answered {answer}"),
    }
}

/// The status of a response.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// The error code, such as `NoSuchBucket`.
    code: Option<String>,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status)?;
        self.code.iter().try_for_each(|code| write!(f, " ({code})"))
    }
}

/// The error and its sources.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

/// Parses the response in the text of an error, whose type is not public.
fn status(text: &str) -> Option<Answer> {
    let (_, answer) = text.split_once("status code: ")?;
    let status = answer.get(..3)?.parse().ok()?;
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code.map(|(code, _)| code).filter(|code| code.chars().all(|c| c.is_ascii_alphanumeric()));
    Some(Answer { status, code: code.map(str::to_owned) })
}

/// Masks secrets of the environment.
fn without_secrets(mut text: String, variables: &Variables) -> String {
    let clouds = ["AWS_", "GOOGLE_", "AZURE_"];
    let secret = ["KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL", "SAS", "ENDPOINT", "PROXY"];
    for (name, value) in variables {
        let is_secret = clouds.iter().any(|cloud| name.starts_with(cloud))
            && secret.iter().any(|part| name.contains(part))
            && !value.is_empty();
        if is_secret {
            text = text.replace(value.as_str(), "***");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_status_and_code_of_a_response_are_shown() {
        let text = "Error performing PUT http://x/y in 3ms - Server returned non-2xx status code: 403 Forbidden: \
                    <Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId></Error>";
        let answer = status(text).expect("an answer");
        assert_eq!(answer, Answer { status: 403, code: Some("SignatureDoesNotMatch".into()) });
        let text = answer_text(&answer, 1);
        assert!(text.contains("403 (SignatureDoesNotMatch)") && !text.contains("AKID"), "{text}");
        let odd =
            status("status code: 500 Internal Server Error: <Code>a secret?</Code>").expect("an answer");
        assert_eq!(odd, Answer { status: 500, code: None });
        assert_eq!(status("something else"), None);
    }

    #[test]
    fn secrets_of_the_environment_are_masked() {
        let variables = vec![
            ("AWS_SECRET_ACCESS_KEY".to_owned(), "hush".to_owned()),
            ("AWS_SESSION_TOKEN".to_owned(), String::new()),
            ("AWS_REGION".to_owned(), "here".to_owned()),
        ];
        assert_eq!(without_secrets("hush in here".into(), &variables), "*** in here");
    }
}

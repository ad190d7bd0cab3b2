use super::loopback::{Answer, Request, Server};
use super::*;

const PATH: &str = "/services/T0K3N";
/// Longer than any answer on loopback takes.
const LONG: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(300);

fn posted(url: &str, timeout: Duration) -> Result<(), HttpError> {
    let outside = tenterhook_core::RunInfo::default().effect_permit().expect("it is no dry run");
    let result = Client::new(outside).post(&Secret::new(url), b"{\"text\":\"hi\"}", timeout);
    if let Err(error) = &result {
        let said = format!("{error} {error:?}");
        assert!(!said.contains("T0K3N") && !said.contains("127.0.0.1"), "{said}");
    }
    result
}

#[test]
fn json_is_posted() {
    let server = Server::start(&[Answer::Status(200), Answer::Status(204)]);
    for _ in 0..2 {
        assert_eq!(posted(&server.url(PATH), LONG), Ok(()));
    }
    let request = Request { line: "POST /services/T0K3N".into(), body: "{\"text\":\"hi\"}".into() };
    assert_eq!(server.received(), [request.clone(), request]);
}

#[test]
fn any_other_status_is_an_error_with_its_retry_after() {
    let server =
        Server::start(&[Answer::Status(404), Answer::Status(500), Answer::With(429, "Retry-After: 7")]);
    let error = [(404, None), (500, None), (429, Some(Duration::from_secs(7)))];
    for (status, retry_after) in error {
        assert_eq!(posted(&server.url(PATH), LONG), Err(HttpError::Status { status, retry_after }));
    }
}

#[test]
fn redirects_are_not_followed() {
    let other = Server::start(&[Answer::Status(200)]);
    let to: &'static str = Box::leak(format!("Location: {}", other.url("/elsewhere")).into_boxed_str());
    for status in [301, 302, 303, 307, 308] {
        let server = Server::start(&[Answer::With(status, to)]);
        let error = posted(&server.url(PATH), LONG).expect_err("no success");
        let said = format!("the server answered {status}, a redirect, which is not followed");
        assert_eq!((error.to_string(), error.is_transient()), (said, false));
    }
    assert_eq!(other.received(), []);
}

#[test]
fn a_server_that_hangs_or_answers_too_slowly_is_a_timeout() {
    for answer in [Answer::Hang, Answer::Slowly(200, Duration::from_millis(50))] {
        let server = Server::start(&[answer]);
        let error = posted(&server.url(PATH), SHORT).expect_err("no answer in time");
        assert_eq!((error, error.is_transient()), (HttpError::Timeout(SHORT), true));
        assert_eq!(error.to_string(), "there was no answer within 0.3 s");
    }
    let odd = HttpError::Timeout(Duration::from_secs_f64(13.498_76));
    assert_eq!(odd.to_string(), "there was no answer within 13.5 s");
}

#[test]
fn a_slow_response_within_the_timeout_is_accepted() {
    let server = Server::start(&[
        Answer::Slowly(200, Duration::from_millis(1)),
        Answer::Slowly(500, Duration::from_millis(1)),
    ]);
    assert_eq!(posted(&server.url(PATH), LONG), Ok(()));
    assert_eq!(posted(&server.url(PATH), LONG), Err(HttpError::Status { status: 500, retry_after: None }));
}

#[test]
fn a_refused_or_reset_connection_is_transient() {
    let error = posted(&Server::nobody(PATH), LONG).expect_err("nobody listens");
    assert_eq!(error, HttpError::Connection("the connection was refused"));
    let server = Server::start(&[Answer::Reset]);
    let error = posted(&server.url(PATH), LONG).expect_err("it is reset");
    assert!(matches!(error, HttpError::Connection(_)), "{error:?}");
    assert!(error.is_transient());
}

#[test]
fn unknown_hosts_and_tls_errors_do_not_show_the_address() {
    let error = posted("http://no-such-host.invalid/T0K3N", LONG).expect_err("nobody has it");
    assert!(matches!(error, HttpError::Connection(_)), "{error:?}");
    let server = Server::start(&[Answer::Status(200)]);
    let error = posted(&server.url(PATH).replace("http:", "https:"), SHORT).expect_err("no TLS");
    assert!(!error.to_string().contains("T0K3N"));
}

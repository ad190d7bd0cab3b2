//! HTTP requests with a timeout. Addresses are secret, so the client's error texts, which may contain them, are replaced.

#[cfg(test)]
pub(crate) mod loopback;
mod retry;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::time::Duration;

use tenterhook_core::EffectPermit;
use ureq::http::HeaderMap;
use ureq::{Agent, Error};

pub(crate) use retry::retry;

use crate::support::secret::Secret;
use crate::worker::WorkerContext;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    /// The status of the response is not a success.
    #[error("the server answered {status}{}", redirect(*status))]
    Status {
        status: u16,
        /// The response header `Retry-After`.
        retry_after: Option<Duration>,
    },
    #[error("there was no answer within {} s", (.0.as_secs_f64() * 10.0).round() / 10.0)]
    Timeout(Duration),
    #[error("{0}")]
    Connection(&'static str),
    /// An error that a retry would not change.
    #[error("{0}")]
    Permanent(&'static str),
}

fn redirect(status: u16) -> &'static str {
    if (300..400).contains(&status) { ", a redirect, which is not followed" } else { "" }
}

impl HttpError {
    /// Whether a retry may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            HttpError::Status { status, .. } => *status == 429 || *status >= 500,
            HttpError::Timeout(_) | HttpError::Connection(_) => true,
            HttpError::Permanent(_) => false,
        }
    }
}

/// The timeout of a request. At the end of a run it is a little less than the time left, so that a failure is reported.
pub(crate) fn timeout_within(timeout: Duration, cx: &WorkerContext) -> Duration {
    cx.time_left().map_or(timeout, |left| timeout.min(left.mul_f64(0.9)))
}

/// An HTTP client that keeps no connections.
#[derive(Debug)]
pub(crate) struct Client(Agent);

impl Client {
    pub(crate) fn new(_: EffectPermit) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // The address is a secret that another server must not receive.
            .max_redirects(0)
            .max_idle_connections(0)
            .user_agent(concat!("tenterhook/", env!("CARGO_PKG_VERSION")))
            .build();
        Client(config.new_agent())
    }

    /// Posts JSON. The status of the response decides; its body is not read.
    pub(crate) fn post(&self, address: &Secret, json: &[u8], timeout: Duration) -> Result<(), HttpError> {
        let request = self.0.post(address.reveal()).config().timeout_global(Some(timeout)).build();
        let response = request.content_type("application/json").send(json);
        let response = response.map_err(|error| classify(&error, timeout))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(HttpError::Status { status: status.as_u16(), retry_after: retry_after(response.headers()) })
    }
}

/// `Retry-After` in seconds; a date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The error without the client's text, which may hold the address.
fn classify(error: &Error, timeout: Duration) -> HttpError {
    match error {
        Error::Timeout(_) => HttpError::Timeout(timeout),
        Error::Io(error) => match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => HttpError::Timeout(timeout),
            ErrorKind::ConnectionRefused => HttpError::Connection("the connection was refused"),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                HttpError::Connection("the connection was reset")
            }
            ErrorKind::UnexpectedEof => {
                HttpError::Connection("the connection was closed before the answer was whole")
            }
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                HttpError::Connection("the server cannot be reached from here")
            }
            _ => HttpError::Connection("the connection failed"),
        },
        Error::HostNotFound => HttpError::Connection("the host name cannot be resolved"),
        Error::ConnectionFailed => HttpError::Connection("the connection failed"),
        Error::InvalidProxyUrl | Error::ConnectProxyFailed(_) => {
            HttpError::Connection("the proxy of the environment refused the connection")
        }
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) | Error::TlsRequired => {
            HttpError::Permanent("the server's identity could not be verified (TLS)")
        }
        Error::Protocol(_) | Error::LargeResponseHeader(..) => {
            HttpError::Permanent("the response is not HTTP")
        }
        Error::BadUri(_) | Error::Http(_) => HttpError::Permanent("the address is not a valid URL"),
        _ => HttpError::Permanent("the request could not be made"),
    }
}

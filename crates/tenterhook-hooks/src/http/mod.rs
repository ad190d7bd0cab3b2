//! Requests to somebody else's server, bounded in time. No address gets into an error: what the client says is put
//! into words of our own.

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

pub(crate) use retry::insist;

use crate::secret::Secret;
use crate::worker::Desk;

/// Why a request came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// There was an answer, and it is no success.
    #[error("the server answered {status}{}", redirect(*status))]
    Answered {
        status: u16,
        /// How long it wants to be left alone.
        retry_after: Option<Duration>,
    },
    #[error("there was no answer within {} s", (.0.as_secs_f64() * 10.0).round() / 10.0)]
    NoAnswer(Duration),
    #[error("{0}")]
    Connection(&'static str),
    /// Nothing that another attempt would change.
    #[error("{0}")]
    Hopeless(&'static str),
}

fn redirect(status: u16) -> &'static str {
    if (300..400).contains(&status) { ", and leads to another address, which is not followed" } else { "" }
}

impl Trouble {
    /// Whether another attempt may do better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Trouble::Answered { status, .. } => *status == 429 || *status >= 500,
            Trouble::NoAnswer(_) | Trouble::Connection(_) => true,
            Trouble::Hopeless(_) => false,
        }
    }
}

/// How long a request may take: its own time, or a little less than what is left to end in, so that somebody still hears
/// how it went.
pub(crate) fn within(timeout: Duration, desk: &Desk) -> Duration {
    desk.time_left().map_or(timeout, |left| timeout.min(left.mul_f64(0.9)))
}

/// Who asks. Nothing is kept from one request to the next.
#[derive(Debug)]
pub(crate) struct Client(Agent);

impl Client {
    pub(crate) fn new(_: EffectPermit) -> Client {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // An address that was meant for one server is not for another one.
            .max_redirects(0)
            .max_idle_connections(0)
            .user_agent(concat!("tenterhook/", env!("CARGO_PKG_VERSION")))
            .build();
        Client(config.new_agent())
    }

    /// Sends JSON to an address. The answer's status decides, and its body is nobody's concern.
    pub(crate) fn post(&self, address: &Secret, json: &[u8], within: Duration) -> Result<(), Trouble> {
        let request = self.0.post(address.reveal()).config().timeout_global(Some(within)).build();
        let answer = request.content_type("application/json").send(json);
        let answer = answer.map_err(|error| in_our_words(&error, within))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(Trouble::Answered { status: status.as_u16(), retry_after: retry_after(answer.headers()) })
    }
}

/// In seconds; a date is not looked at, and our own back-off serves.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// What the client says may hold the address, so nothing of it is passed on.
fn in_our_words(error: &Error, within: Duration) -> Trouble {
    match error {
        Error::Timeout(_) => Trouble::NoAnswer(within),
        Error::Io(error) => match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Trouble::NoAnswer(within),
            ErrorKind::ConnectionRefused => Trouble::Connection("the connection was refused"),
            ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
                Trouble::Connection("the connection was reset")
            }
            ErrorKind::UnexpectedEof => {
                Trouble::Connection("the connection was closed before the answer was whole")
            }
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                Trouble::Connection("the server cannot be reached from here")
            }
            _ => Trouble::Connection("the connection failed"),
        },
        Error::HostNotFound => Trouble::Connection("the server's name is not known"),
        Error::ConnectionFailed => Trouble::Connection("the connection failed"),
        Error::InvalidProxyUrl | Error::ConnectProxyFailed(_) => {
            Trouble::Connection("the proxy that the environment names does not let us through")
        }
        Error::Tls(_) | Error::Rustls(_) | Error::Pem(_) | Error::TlsRequired => {
            Trouble::Hopeless("the server's identity could not be verified (TLS)")
        }
        Error::Protocol(_) | Error::LargeResponseHeader(..) => {
            Trouble::Hopeless("what answered does not speak HTTP")
        }
        Error::BadUri(_) | Error::Http(_) => Trouble::Hopeless("the address is none that can be asked"),
        _ => Trouble::Hopeless("the request could not be made"),
    }
}

//! A real S3 server (moto), and a proxy that makes some requests fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// An HTTP and an HTTPS server with the same buckets. They end when their standard input closes, with the
/// process that started them.
const SCRIPT: &str = r#"
import ssl, sys, tempfile, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server, make_ssl_devcert
with tempfile.TemporaryDirectory() as directory:
    certificate, key = make_ssl_devcert(directory + "/server", host="localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    text = open(certificate).read()
app = DomainDispatcherApplication(create_backend_app)
for encrypted in [None, context]:
    server = make_server("127.0.0.1", 0, app, True, ssl_context=encrypted)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(text, flush=True)
sys.stdin.read()
"#;

pub struct Moto {
    pub port: u16,
    /// The port of the HTTPS server.
    pub tls_port: u16,
    /// The certificate of the HTTPS server, in PEM format.
    pub certificate: String,
    server: Child,
}

impl Moto {
    /// The server that all tests share, with one bucket per test; `None` without a Python with moto.
    pub fn shared() -> Option<&'static Moto> {
        static SHARED: OnceLock<Option<Moto>> = OnceLock::new();
        SHARED.get_or_init(|| Moto::start(&[])).as_ref()
    }

    pub fn start(variables: &[(&str, &str)]) -> Option<Moto> {
        let python = std::env::var("TENTERHOOK_PYTHON").unwrap_or_else(|_| "python3".into());
        let has_it = Command::new(&python).args(["-c", "import moto.server, flask, cryptography"]).output();
        if !has_it.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "CI must have a Python with moto[server]");
            eprintln!("SKIPPED: there is no Python with moto[server] (name one in TENTERHOOK_PYTHON)");
            return None;
        }
        let mut python = Command::new(python);
        python.args(["-c", SCRIPT]).envs(variables.iter().copied());
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = python.spawn().expect("python runs");
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut port = || lines.next().and_then(|port| port.parse().ok()).expect("moto says its ports");
        let (port, tls_port) = (port(), port());
        let mut certificate = String::new();
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            certificate += &(line + "\n");
        }
        Some(Moto { port, tls_port, certificate, server })
    }

    /// Creates a new bucket.
    pub fn bucket(&self) -> Bucket {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("bucket-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let (status, _) = ask(self.port, "PUT", &format!("/{name}"));
        assert_eq!(status, 200);
        Bucket { name, port: self.port }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

pub struct Bucket {
    pub name: String,
    port: u16,
}

impl Bucket {
    pub fn keys(&self) -> Vec<String> {
        let (status, list) = ask(self.port, "GET", &format!("/{}?list-type=2", self.name));
        assert_eq!(status, 200);
        let list = String::from_utf8(list).unwrap();
        let keys = list.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap().to_owned());
        keys.collect()
    }

    pub fn get(&self, key: &str) -> Vec<u8> {
        let (status, bytes) = ask(self.port, "GET", &format!("/{}/{key}", self.name));
        assert_eq!(status, 200, "{key}");
        bytes
    }
}

/// Moto accepts any credentials.
const SOMEBODY: &str = "AWS4-HMAC-SHA256 Credential=me/20260101/us-east-1/s3/aws4_request, \
                        SignedHeaders=host, Signature=0";

/// Sends a request on a new connection.
fn ask(port: u16, method: &str, path: &str) -> (u16, Vec<u8>) {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: {SOMEBODY}\r\nContent-Length: 0\r\n\
         Connection: close\r\n\r\n"
    );
    let answer = pass_on(port, request.as_bytes(), &[]);
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer");
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer[head + 4..].to_vec())
}

fn pass_on(port: u16, head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.write_all(head).unwrap();
    server.write_all(body).unwrap();
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).unwrap();
    answer
}

/// The handling of a request by the proxy.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Forward it.
    Pass,
    /// Answer with this status.
    Answer(u16),
    /// Refuse it and repeat the request's head in the answer, as some servers do for debugging.
    Repeat,
    /// Never answer.
    Hang,
    /// Close the connection before the whole request is read.
    Reset,
    /// Send the answer byte by byte.
    Dribble,
}

type Decide = Box<dyn FnMut(&str) -> Fate + Send>;

/// The proxy between the uploader and the server.
pub struct Proxy {
    pub port: u16,
    log: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub fn start(server: u16, decide: impl FnMut(&str) -> Fate + Send + 'static) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let decide: Arc<Mutex<Decide>> = Arc::new(Mutex::new(Box::new(decide)));
        let kept = Arc::clone(&log);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (log, decide) = (Arc::clone(&kept), Arc::clone(&decide));
                std::thread::spawn(move || drop(one(client, server, &log, &decide)));
            }
        });
        Proxy { port, log }
    }

    /// The forwarded requests, as `PUT /bucket/key`, in order.
    pub fn passed(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

/// Handles one request, and closes the connection.
fn one(
    mut client: TcpStream,
    server: u16,
    log: &Mutex<Vec<String>>,
    decide: &Mutex<Decide>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let (mut head, mut length, mut what) = (Vec::new(), 0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if what.is_empty() {
            let (asked, _) = line.rsplit_once(' ').unwrap_or_default();
            asked.clone_into(&mut what);
        }
        let lower = line.to_ascii_lowercase();
        if let Some(bytes) = lower.strip_prefix("content-length:") {
            length = bytes.trim().parse().unwrap_or(0);
        }
        if line == "\r\n" {
            break;
        }
        if !lower.starts_with("connection:") && !lower.starts_with("expect:") {
            head.extend(line.bytes());
        }
    }
    let fate = decide.lock().unwrap()(&what);
    if let Fate::Reset = fate {
        // With unread data, the system resets the connection.
        return Ok(());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = match fate {
        Fate::Hang => loop {
            std::thread::park();
        },
        Fate::Answer(status) => {
            format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
        }
        Fate::Repeat => {
            let said = format!("<Error><Code>Nope</Code>{}</Error>", String::from_utf8_lossy(&head));
            format!("HTTP/1.1 403 So\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{said}", said.len())
                .into_bytes()
        }
        Fate::Pass | Fate::Dribble | Fate::Reset => {
            head.extend(b"Connection: close\r\n\r\n");
            log.lock().unwrap().push(what);
            pass_on(server, &head, &body)
        }
    };
    if let Fate::Dribble = fate {
        for byte in answer {
            client.write_all(&[byte])?;
            client.flush()?;
        }
        return Ok(());
    }
    client.write_all(&answer)
}

//! An HTTP server on loopback for tests, which can misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How the server answers a request.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code)] // each crate whose tests include this file uses some of them
pub enum Answer {
    /// This status.
    Status(u16),
    /// This status, with this additional header.
    With(u16, &'static str),
    /// This status, sent byte by byte with this pause.
    Slowly(u16, Duration),
    /// No answer until the server is dropped.
    Hang,
    /// An incomplete status line; then the connection is reset.
    Reset,
}

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Method and path.
    pub line: String,
    pub body: String,
}

/// A server that runs until it is dropped.
pub struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that gives these answers in order, and repeats the last one.
    pub fn start(answers: &[Answer]) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a port");
        let address = listener.local_addr().expect("it has an address");
        let (received, over) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(AtomicBool::new(false)));
        let (heard, ends, answers) = (received.clone(), over.clone(), answers.to_vec());
        let accepting = thread::spawn(move || {
            let mut answering = Vec::new();
            let mut answers = answers.into_iter();
            let mut answer = answers.next().expect("there is an answer");
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    break;
                }
                let (now, heard, ends) = (answer, heard.clone(), ends.clone());
                answer = answers.next().unwrap_or(answer);
                answering.push(thread::spawn(move || {
                    let _ = stream.and_then(|stream| serve(stream, now, &heard, &ends));
                }));
            }
            for thread in answering {
                let _ = thread.join();
            }
        });
        Server { address, received, over, accepting: Some(accepting) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests received so far, answered or not.
    pub fn received(&self) -> Vec<Request> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An address without a server.
    #[allow(dead_code)]
    pub fn nobody(path: &str) -> String {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a port");
        format!("http://{}{path}", listener.local_addr().expect("it has an address"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // A connection ends the blocking `accept`.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    stream: TcpStream,
    answer: Answer,
    heard: &Mutex<Vec<Request>>,
    over: &AtomicBool,
) -> std::io::Result<()> {
    let mut reader = BufReader::with_capacity(1, stream.try_clone()?);
    let mut stream = stream;
    if let Answer::Reset = answer {
        // The kernel resets the connection because received data is unread.
        reader.read_exact(&mut [0; 4])?;
        return stream.write_all(b"HTTP/1.1 200");
    }
    let request = read(&mut reader)?;
    heard.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    let text = |status: u16, line: &str| {
        format!("HTTP/1.1 {status} So\r\n{line}Content-Length: 2\r\nConnection: close\r\n\r\nok")
    };
    match answer {
        Answer::Status(status) => stream.write_all(text(status, "").as_bytes()),
        Answer::With(status, line) => stream.write_all(text(status, &format!("{line}\r\n")).as_bytes()),
        Answer::Slowly(status, apart) => {
            for byte in text(status, "").bytes() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                thread::sleep(apart);
                stream.write_all(&[byte])?;
            }
            Ok(())
        }
        Answer::Hang | Answer::Reset => {
            stream.set_read_timeout(Some(Duration::from_millis(20)))?;
            // Wait until the client closes the connection.
            while !over.load(Ordering::SeqCst) && !matches!(stream.read(&mut [0]), Ok(0)) {}
            Ok(())
        }
    }
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Request> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Ok(Request { line, body: String::from_utf8_lossy(&body).into_owned() })
}

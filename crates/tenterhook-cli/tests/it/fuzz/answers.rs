//! Fuzzed server responses to `notify`, `heartbeat` and `upload`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::harness::{seed, time};
use super::mutate::{Rng, bytes};
use crate::tenter::{Ran, TestDir};

const TOKEN: &str = "T0K3N-7f31";

const ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/plain\r\n\r\nok",
    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n<Error><Code>NoSuchKey</Code></Error>",
    "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nLast-Modified: Wed, 18 Nov 2026 12:00:00 GMT\r\nContent-Length: 2\r\n\r\n{}",
];

const WORDS: &[&str] = &[
    "HTTP/1.1 ",
    "200",
    "999",
    "Content-Length: 18446744073709551615\r\n",
    "Transfer-Encoding: chunked\r\n",
    "\r\n\r\n",
    "Location: ",
    "ffffffffffffffff\r\n",
    "ETag: \"",
    "Last-Modified: ",
    "<Code>",
];

/// Starts a server that sends a different response to each request, and counts the requests.
fn serve() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a port");
    let port = listener.local_addr().expect("an address").port();
    let answered = Arc::new(AtomicUsize::new(0));
    let counted = answered.clone();
    std::thread::spawn(move || {
        let mut rng = Rng(seed());
        for stream in listener.incoming().flatten() {
            let (base, other) = (rng.pick(ANSWERS).as_bytes(), rng.pick(ANSWERS).as_bytes());
            // Half of the responses start with a valid line.
            let kept = if rng.below(2) == 0 { 15 } else { 0 };
            let answer = [&base[..kept], &bytes(&mut rng, &base[kept..], other, WORDS)].concat();
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || answered_with(stream, &answer));
        }
    });
    (port, answered)
}

/// Reads a part of the request, sends the response, and closes the connection.
fn answered_with(mut stream: TcpStream, answer: &[u8]) {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let mut request = vec![0; 1 << 16];
    let _ = stream.read(&mut request);
    let _ = stream.write_all(answer);
}

/// Checks that nothing panicked, the training completed, and the address stayed secret.
fn survived(dir: &TestDir, ran: Ran) {
    let ran = ran.succeeded();
    for text in [&ran.stdout, &ran.stderr, &dir.read("runs/latest/events.jsonl")] {
        let panics = text.contains("panicked at") || text.contains("\"panicked\":true");
        assert!(!panics, "seed {}: {text}", seed());
        assert!(!text.contains(TOKEN), "seed {}: {text}", seed());
    }
}

/// A configuration with many hooks that wait for a response.
fn config() -> String {
    let task = "task = \"toy\"\n[trainer]\nmax_epochs = 1\n";
    let common = "url_env = \"TENTERHOOK_TEST_WEBHOOK\"\ntimeout = \"1 s\"\non_error = \"warn\"\n";
    let notify =
        (0..12).map(|n| format!("[[hooks]]\nuse = \"notify\"\nname = \"n{n}\"\nretries = 0\n{common}"));
    let heartbeat = format!("[[hooks]]\nuse = \"heartbeat\"\n{common}");
    let upload = "[[hooks]]\nuse = \"checkpoint\"\n[[hooks]]\nuse = \"upload\"\nto = \"s3://bucket/runs\"\nretries = 0\n\
                  timeout = \"1 s\"\non_error = \"warn\"\n";
    [task.to_owned()].into_iter().chain(notify).chain([heartbeat, upload.to_owned()]).collect()
}

#[test]
fn a_training_survives_any_answer_of_a_server() {
    let (port, answered) = serve();
    let began = std::time::Instant::now();
    loop {
        let dir = TestDir::new();
        dir.write("c.toml", config());
        let mut command = dir.command(&["train", "c.toml", "--no-test"]);
        let url = format!("http://127.0.0.1:{port}/{TOKEN}");
        let output = command
            .env("TENTERHOOK_TEST_WEBHOOK", url)
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
            .env("AWS_ACCESS_KEY_ID", "key")
            .env("AWS_SECRET_ACCESS_KEY", TOKEN)
            .env("AWS_REGION", "us-east-1")
            .output()
            .expect("it runs");
        survived(&dir, output.into());
        if time().is_none_or(|time| began.elapsed() >= time) {
            break;
        }
    }
    let answered = answered.load(Ordering::SeqCst);
    assert!(answered > 10, "only {answered} requests came");
    println!("fuzzed answers with {answered} inputs, seed {}", seed());
}

//! Somebody between a process and its etcd, who can hold questions back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Passes questions on, as long as the test runs.
pub struct Between {
    /// Where it is asked.
    pub endpoint: String,
    holds: Arc<AtomicBool>,
}

impl Between {
    /// Begins to pass on to this etcd.
    pub fn start(etcd: &str) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = listener.local_addr().expect("its address").to_string();
        let holds = Arc::new(AtomicBool::new(false));
        let (etcd, own) = (etcd.to_owned(), Arc::clone(&holds));
        std::thread::spawn(move || {
            for asker in listener.incoming().map_while(Result::ok) {
                let (etcd, holds) = (etcd.clone(), Arc::clone(&own));
                std::thread::spawn(move || pass(&asker, &etcd, &holds));
            }
        });
        Between { endpoint, holds }
    }

    /// From now on only renewals of leases are passed on; all else waits for ever.
    pub fn hold(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }
}

/// Passes one question on, and its answer back; none where the asker went away.
fn pass(asker: &TcpStream, etcd: &str, holds: &AtomicBool) -> Option<()> {
    let mut reader = BufReader::new(asker.try_clone().ok()?);
    let (mut head, mut length, mut line) = (String::new(), 0, String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse().ok()?;
        }
        if !line.to_ascii_lowercase().starts_with("connection:") {
            head.push_str(&line);
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let is_renewal = head.lines().next()?.contains("/v3/lease/keepalive");
    if holds.load(Ordering::SeqCst) && !is_renewal {
        // Until the asker gives it up.
        let _ = reader.read(&mut [0]);
        return None;
    }
    let mut etcd = TcpStream::connect(etcd).ok()?;
    etcd.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
    etcd.write_all(&body).ok()?;
    std::io::copy(&mut etcd, &mut &*asker).ok().map(drop)
}

//! An etcd of the test's own, on loopback, with its data in memory.

#![allow(dead_code)] // each program uses some of it

pub mod slow;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with the test.
pub struct OwnEtcd {
    child: Child,
    /// Its address.
    pub endpoint: String,
    _folder: tempfile::TempDir,
}

/// An address at which nobody listens.
pub fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address")
}

impl OwnEtcd {
    /// Starts one and waits until it answers; none where etcd is not installed.
    pub fn start() -> Option<OwnEtcd> {
        let folder = tempfile::Builder::new().prefix("engram-etcd-").tempdir_in("/dev/shm");
        let folder = folder.or_else(|_| tempfile::tempdir()).expect("a folder");
        for _ in 0..5 {
            let (client, peer) = (free_port(), free_port());
            let child = Command::new("etcd")
                .arg("--name=own")
                .arg(format!("--data-dir={}", folder.path().join("data").display()))
                .arg(format!("--listen-client-urls=http://{client}"))
                .arg(format!("--advertise-client-urls=http://{client}"))
                .arg(format!("--listen-peer-urls=http://{peer}"))
                .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
                .arg(format!("--initial-cluster=own=http://{peer}"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = child else {
                println!("skipped: etcd is not installed (Debian's etcd-server)");
                return None;
            };
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(60) {
                if child.try_wait().expect("a child").is_some() {
                    break; // somebody else took the port
                }
                if TcpStream::connect(client).is_ok() && answers(&client.to_string()) {
                    return Some(OwnEtcd { child, endpoint: client.to_string(), _folder: folder });
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("etcd does not start");
    }

    /// Ends it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(endpoint: &str) -> bool {
    use engram_cluster::driver::etcd::Etcd;
    use engram_protocol::coordinator::{Reply, Request};
    let etcd = Etcd::new(&[endpoint.to_owned()], None, Duration::from_secs(1)).expect("an address");
    matches!(etcd.answer(&Request::Get { keys: vec!["x".to_owned()] }), Reply::Rows { .. })
}

impl Drop for OwnEtcd {
    fn drop(&mut self) {
        self.kill();
    }
}

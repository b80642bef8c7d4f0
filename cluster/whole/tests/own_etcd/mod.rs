//! An etcd of the test's own, on loopback, with its data in memory.

#![allow(dead_code)] // each program uses some of it

pub mod slow;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use engram_cluster::driver::etcd::judge_version;

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
    /// Starts one and waits until it answers; none where no etcd is installed that may decide.
    pub fn start() -> Option<OwnEtcd> {
        let Some(program) = program() else {
            println!("skipped: no etcd that may decide is installed (Debian's etcd-server)");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("engram-etcd-").tempdir_in("/dev/shm");
        let folder = folder.or_else(|_| tempfile::tempdir()).expect("a folder");
        for _ in 0..5 {
            let (client, peer) = (free_port(), free_port());
            let mut child = Command::new(&program)
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
                .spawn()
                .expect("a program that told its version");
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

/// The first etcd in PATH that may decide for a cluster.
fn program() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join("etcd")).find(|program| {
        let Ok(said) = Command::new(program).arg("--version").output() else { return false };
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let version = said.lines().find_map(|line| line.strip_prefix("etcd Version:"));
        version.is_some_and(|told| judge_version(told.trim()).is_ok())
    })
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

//! Whether a process runs, by what the kernel says of its number.

/// What is known of the process of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// There is none, or it has ended and nobody has asked for it yet.
    Gone,
    /// It runs, and began so many ticks after the machine.
    Since(u64),
    /// The kernel does not say: this process has no descriptor left to look, or no `/proc`. In
    /// doubt a process runs.
    Unknown,
}

impl Life {
    /// What is known of a process. One whose first thread has ended runs as long as any other does.
    pub fn of_process(pid: u32) -> Life {
        Life::of(pid, |stat| stat.is_dead && stat.threads <= 1)
    }

    /// What is known of a thread, by its own number.
    pub fn of_thread(tid: u32) -> Life {
        Life::of(tid, |stat| stat.is_dead)
    }

    fn of(number: u32, has_ended: impl Fn(&Stat) -> bool) -> Life {
        match std::fs::read_to_string(format!("/proc/{number}/stat")) {
            Ok(text) => match Stat::parse(&text) {
                Some(stat) if has_ended(&stat) => Life::Gone,
                Some(stat) => Life::Since(stat.since),
                None => Life::Unknown,
            },
            // Without a descriptor left, say, signals tell.
            Err(_) if !is_there(number) => Life::Gone,
            Err(_) => Life::Unknown,
        }
    }
}

/// Whether the kernel has a thread of this number, whoever may ask for it.
fn is_there(number: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; the kernel says whether it could be.
    let found = unsafe { libc::kill(number as libc::pid_t, 0) } == 0;
    found || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

struct Stat {
    is_dead: bool,
    threads: u64,
    since: u64,
}

impl Stat {
    /// The fields of `/proc/PID/stat` behind the name, which may hold spaces.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let is_dead = matches!(*fields.first()?, "Z" | "X");
        Some(Stat { is_dead, threads: number(17)?, since: number(19)? })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::{Life, Stat};

    #[test]
    fn a_process_is_gone_when_it_has_ended() {
        let own = Life::of_process(std::process::id());
        assert!(matches!(own, Life::Since(at) if at > 0), "{own:?}");
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        assert!(matches!(Life::of_process(child.id()), Life::Since(_)));
        child.kill().unwrap();
        while Life::of_process(child.id()) != Life::Gone {
            std::thread::yield_now();
        }
        assert_eq!(Life::of_thread(child.id()), Life::Gone, "nobody has asked for it yet");
        child.wait().unwrap();
        assert_eq!(Life::of_process(child.id()), Life::Gone);
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_runs() {
        let line = |state, threads| {
            let between = "0 ".repeat(16);
            format!("7 (a) b) {state} {between}{threads} 0 4711 0")
        };
        let stat = Stat::parse(&line("Z", 2)).unwrap();
        assert!(stat.is_dead && stat.threads == 2 && stat.since == 4711);
        assert!(Stat::parse("7 (a").is_none());
    }
}

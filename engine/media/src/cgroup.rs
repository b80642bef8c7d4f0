//! How much memory may still be taken before the kernel kills: memory cgroups and the machine.
//!
//! Pages of tmpfs are charged to the cgroup of the process that first touches them, and
//! `fallocate` touches them. Beyond the limit the kernel reclaims what it can and then kills a
//! process of the cgroup; `fallocate` does not return an error. So the headroom is looked at first.
//! Between the look and the allocation others may take memory: this is a courtesy that turns the
//! common mistake into an error, not a guarantee, and nothing rests on it for correctness.
//!
//! The headroom is the least of `limit - usage` over this process's cgroup and all its ancestors
//! that are visible, v1 or v2. Usage counts the file cache, which the kernel drops before it kills,
//! so clean cached file pages (`active_file` and `inactive_file`, less dirty ones and those being
//! written) are taken off it. Pages of tmpfs are not among those: the kernel keeps them on its
//! lists of anonymous pages. Swap is not counted as room within a cgroup: a pool in swap is no
//! pool. `memory.high` counts as a limit, since beyond it allocations stall. The machine itself is
//! the outermost limit: a tmpfs may be mounted larger than the memory there is.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use engram_base::error::Result;
use engram_base::fail;
use engram_base::size::ByteSize;

/// Limits from here on mean "no limit": v1 writes the largest page-aligned i64.
const UNLIMITED: u64 = 1 << 60;

/// The file in which the kernel says what memory the machine has.
const MACHINE: &str = "proc/meminfo";

/// A limit, what is used of it, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit, in bytes.
    pub bytes: u64,
    /// What counts against it and cannot be dropped, in bytes.
    pub used: u64,
    /// The file that holds the limit, for messages.
    pub file: PathBuf,
}

impl fmt::Display for Limit {
    /// Which limit it is, by its file, and what it leaves, with the numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_machine = self.file.ends_with(MACHINE);
        let what = if of_machine { "this machine's memory" } else { "the memory cgroup's limit" };
        write!(
            f,
            "{what}, {}, has {} left (limit {}, used {})",
            self.file.display(),
            ByteSize(self.headroom()),
            ByteSize(self.bytes),
            ByteSize(self.used)
        )
    }
}

impl Limit {
    /// What may still be taken, in bytes.
    pub fn headroom(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }
}

/// What bounds the memory that this process may take: the tightest of its cgroups, the machine.
pub fn limits() -> Vec<Limit> {
    let root = Path::new("/");
    [tightest(root), machine(root)].into_iter().flatten().collect()
}

/// Refuses an allocation of `bytes` of memory for `what` that the kernel would answer by killing.
///
/// On error nothing has been allocated: free memory, raise the limit that is named, or ask for
/// less, and call again.
pub fn admit(bytes: u64, what: &str) -> Result<()> {
    admit_under(Path::new("/"), bytes, what)
}

/// [`admit`], for the system whose files lie under `root`.
fn admit_under(root: &Path, bytes: u64, what: &str) -> Result<()> {
    let needed = with_overhead(bytes);
    let limits = [tightest(root), machine(root)];
    for limit in limits.into_iter().flatten() {
        if needed > limit.headroom() {
            fail!(
                PoolFull,
                "{what} needs {} of memory, and {limit}; beyond it the kernel would kill a \
                 process: raise the limit, free memory, or ask for less",
                ByteSize(bytes)
            );
        }
    }
    Ok(())
}

/// `bytes` with what the kernel charges beside it: page tables (1/512) and the file's own tree of
/// pages (one node of 576 bytes for 64 pages, 1/455), and a little for the process itself.
fn with_overhead(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 128).saturating_add(256 << 10)
}

/// The limit that leaves least of the memory that can be had without killing: a cgroup's, or the
/// machine's.
pub(super) fn least() -> Option<Limit> {
    limits().into_iter().min_by_key(Limit::headroom)
}

/// The machine as a limit: what could be had without swapping out or killing, and free swap.
fn machine(root: &Path) -> Option<Limit> {
    let file = root.join(MACHINE);
    let text = fs::read_to_string(&file).ok()?;
    let kib = |key: &str| field(&text, key).map(|n| n.saturating_mul(1024));
    let total = kib("MemTotal:")?.saturating_add(kib("SwapTotal:").unwrap_or(0));
    let left = kib("MemAvailable:")?.saturating_add(kib("SwapFree:").unwrap_or(0));
    Some(Limit { bytes: total, used: total.saturating_sub(left), file })
}

/// The tightest memory cgroup limit above this process; `None` without a limit.
fn tightest(root: &Path) -> Option<Limit> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    hierarchies(&own, &mounts).into_iter().flat_map(|h| h.limits(root)).min_by_key(Limit::headroom)
}

/// One mounted hierarchy of cgroups that can limit memory, and this process's place in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    unified: bool,
    /// Where it is mounted, without the leading slash.
    mount: PathBuf,
    /// This process's cgroup below the mount.
    below: PathBuf,
}

impl Hierarchy {
    /// The limits of this process's cgroup and each one above it, up to the mount.
    fn limits(&self, root: &Path) -> Vec<Limit> {
        let top = root.join(&self.mount);
        self.below
            .ancestors()
            .filter_map(|below| {
                let dir = top.join(below);
                if self.unified { limit_v2(&dir) } else { limit_v1(&dir) }
            })
            .collect()
    }
}

fn limit_v1(dir: &Path) -> Option<Limit> {
    let file = dir.join("memory.limit_in_bytes");
    let bytes = number(&file).filter(|&n| n < UNLIMITED)?;
    let usage = number(&dir.join("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cache = clean_cache(&stat, "total_", ["dirty", "writeback"]);
    Some(Limit { bytes, used: usage.saturating_sub(cache), file })
}

fn limit_v2(dir: &Path) -> Option<Limit> {
    let files = [dir.join("memory.max"), dir.join("memory.high")];
    let (bytes, file) =
        files.into_iter().filter_map(|f| Some((number(&f)?, f))).min_by_key(|(n, _)| *n)?;
    let usage = number(&dir.join("memory.current"))?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let cache = clean_cache(&stat, "", ["file_dirty", "file_writeback"]);
    Some(Limit { bytes, used: usage.saturating_sub(cache), file })
}

/// The bytes of cached files in a `memory.stat` that the kernel can drop without writing them.
fn clean_cache(stat: &str, prefix: &str, busy: [&str; 2]) -> u64 {
    let get = |key: &str| field(stat, &format!("{prefix}{key}")).unwrap_or(0);
    let cached = get("active_file").saturating_add(get("inactive_file"));
    busy.into_iter().fold(cached, |left, key| left.saturating_sub(get(key)))
}

/// The number after `key` in lines of `key number`.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next()? == key { words.next()?.parse().ok() } else { None }
    })
}

/// A file that holds one number; `None` if it holds "max", anything else, or is not there.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The hierarchies that can limit memory, from /proc/self/cgroup and /proc/self/mountinfo.
fn hierarchies(own: &str, mounts: &str) -> Vec<Hierarchy> {
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(super::filesystem::MountRow::parse) {
        let unified = mount.fstype == "cgroup2";
        let memory = mount.fstype == "cgroup" && mount.options.split(',').any(|o| o == "memory");
        if !unified && !memory {
            continue;
        }
        let Some(path) = own.lines().find_map(|line| own_path(line, unified)) else { continue };
        // Inside a container without a cgroup namespace the path is the host's, and the mount
        // shows only what is below the mount's own root. A cgroup outside it shows as "/..": then
        // the mount's root is the nearest that can be seen.
        let below = Path::new(path).strip_prefix(&mount.root).unwrap_or(Path::new(""));
        let below = below.strip_prefix("/").unwrap_or(below);
        let below = if path.contains("/..") { Path::new("") } else { below };
        let point = Path::new(&mount.point);
        found.push(Hierarchy {
            unified,
            mount: point.strip_prefix("/").unwrap_or(point).to_path_buf(),
            below: below.to_path_buf(),
        });
    }
    found
}

/// The path in a line `number:controllers:path` of /proc/self/cgroup, if it is the one wanted.
fn own_path(line: &str, unified: bool) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let wanted = if unified {
        controllers.is_empty()
    } else {
        controllers.split(',').any(|c| c == "memory")
    };
    wanted.then_some(path)
}

#[cfg(test)]
mod tests;

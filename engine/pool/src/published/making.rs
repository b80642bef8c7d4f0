//! A published version that is being made.

use engram_realm::index;
use engram_realm::spans;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::namespace::create_catalog;
use crate::published::{FILE_MODE, VersionFile};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::pool_lock::wait_for;
use engram_base::random;
use engram_base::scope::Scope;
use engram_base::size::ByteSize;
use engram_catalog::meta::meta_u64;
use engram_catalog::{Catalog, Headroom, Table};
use engram_files::folder;
use engram_files::folder::make_folder;
use engram_files::paths::REALM_FILE;
use engram_files::pool_file::{FORMAT, PoolFile};
use engram_files::toml_file::write_toml;
use engram_files::versions::{MAKING, version_name, versions};
use engram_media::filesystem::Free;
use engram_media::{devdax, filesystem, span};
use engram_ops::rows_mut::{Reserved, RowsMut};
use engram_realm::{Core, LIMIT, Purpose, Setup, USED, boot_id, open, shut};
use engram_records::extent::{Extent, PAGE, best_align, extent_len, round_up};
use engram_space::extent::{Floor, Span, covers, insert_free, reclaim, reserve_row};

/// No span is longer, so that memory comes back in pieces as values are withdrawn.
pub const SPAN_MAX: u64 = 256 << 20;
/// Left on a device for catalogs and leases.
const DEVICE_MARGIN: u64 = 1 << 20;

/// The right to publish in a namespace, and the version that is being made with it.
pub struct Making {
    core: Arc<Core>,
    /// The namespace's folder of versions.
    published: PathBuf,
    /// The folder of what is being made.
    place: PathBuf,
    version: u64,
    /// Files of spans that no version has yet.
    made: Vec<PathBuf>,
    /// The bound of what may be published.
    limit: u64,
    /// Told when the version is there.
    told: Box<dyn Fn()>,
    done: bool,
    /// Given up last.
    _publish_lock: PublishLock,
}

impl Making {
    /// Waits for the right to publish, clears away what the dead have left, and begins with a copy
    /// of the newest version. `shared` is the namespace's shared realm: a process that may write it
    /// publishes. `Busy`: the process that has the right stands still.
    pub(crate) fn begin(shared: &Core, told: impl Fn() + 'static) -> Result<Making> {
        let publish_lock = PublishLock::take(&shared.setup.dir)?;
        let published = shared.setup.dir.with_file_name(Scope::Published.as_str());
        folder::check_real(&shared.setup.pool, &published)?;
        let file = PoolFile::read(&shared.setup.pool)?;
        if versions(&published)?.0.len() > 1 {
            // The process that named the newest may have died before all were told of it, and now
            // go the files of the others.
            told();
        }
        let newest = clear_left(&shared.setup, &published, &file)?;
        let limit = {
            let inside = shared.enter()?;
            meta_u64(inside.read()?.get(Table::Meta, LIMIT)?)?
        };
        let place = published.join(format!("{MAKING}{:016x}", random::id()?));
        let begun = begin_at(&shared.setup, &published, &place, newest, limit);
        let core = begun.inspect_err(|_| drop(fs::remove_dir_all(&place)))?;
        step!("publish.begun");
        Ok(Making {
            core: Arc::new(core),
            published,
            place,
            version: newest.unwrap_or(0) + 1,
            made: Vec::new(),
            limit,
            told: Box::new(told),
            done: false,
            _publish_lock: publish_lock,
        })
    }

    /// The working realm.
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Makes spans for values of these lengths, and reserves each its place in them.
    pub(crate) fn place(&mut self, lengths: &[u64]) -> Result<Vec<Reserved>> {
        let core = Arc::clone(&self.core);
        let inside = core.enter()?;
        let (spans, used) = {
            let txn = inside.read()?;
            (Span::all(&mut txn.rows())?, meta_u64(txn.get(Table::Meta, USED)?)?)
        };
        let lens: Vec<u64> = lengths.iter().map(|nbytes| extent_len(*nbytes)).collect();
        let wanted = lens.iter().fold(0, |sum: u64, len| sum.saturating_add(*len));
        if used.saturating_add(wanted) > self.limit {
            fail!(
                PoolFull,
                "namespace {:?} has no room for {} more to be published: its size is {}, {} are \
                 published; unpublish some, or resize it (pool.resize)",
                core.setup.namespace,
                ByteSize(wanted),
                ByteSize(self.limit),
                ByteSize(used)
            );
        }
        let Some(longest) = lens.iter().max() else { return Ok(Vec::new()) };
        let end = spans.last().map_or(0, |last| last.range.end());
        let start = round_up(end, best_align(*longest));
        let (mut extents, mut at) = (Vec::with_capacity(lens.len()), start);
        for len in lens {
            let offset = round_up(at, best_align(len));
            extents.push(Extent { offset, len });
            at = offset + len;
        }
        let mut number = spans.len() as u32;
        let mut new = Vec::new();
        if start > end {
            let range = Extent { offset: end, len: start - end };
            new.push(Span { number, device: Span::NO_DEVICE, range, file: number, place: 0 });
            number += 1;
        }
        self.make_spans(
            number,
            Extent { offset: start, len: round_up(at, PAGE) - start },
            &mut new,
        )?;
        step!("publish.spans-made");
        let lease = inside.lease().id();
        core.commit(&inside, Headroom::Normal, |rows| {
            for span in &new {
                rows.txn().put(Table::Spans, &Span::key(span.number), &span.to_row())?;
            }
            let mut free = end;
            for extent in &extents {
                if extent.offset > free {
                    let gap = Extent { offset: free, len: extent.offset - free };
                    insert_free(rows.txn(), gap)?;
                }
                reserve_row(rows.txn(), lease, *extent)?;
                free = extent.end();
            }
            let last = new.last().map_or(free, |span| span.range.end());
            if last > free {
                insert_free(rows.txn(), Extent { offset: free, len: last - free })?;
            }
            Ok(())
        })?;
        Ok(extents.into_iter().map(|extent| Reserved { extent, lease }).collect())
    }

    /// Makes the files of spans that fill a range, on the devices with most room.
    fn make_spans(&mut self, mut number: u32, range: Extent, new: &mut Vec<Span>) -> Result<()> {
        let core = Arc::clone(&self.core);
        let devices = PoolFile::read(&core.setup.pool)?.devices;
        let (mut at, end) = (range.offset, range.end());
        while at < end {
            let (mut best, mut bound) = ((0, 0), None);
            // A devdax node is one file with one mode: nothing of it can be open to readers alone.
            let folders = devices.iter().enumerate().filter(|(_, path)| !devdax::is_node(path));
            for (index, device) in folders {
                let free = filesystem::free(device)?;
                let room = free.bytes.saturating_sub(DEVICE_MARGIN);
                bound = bound.or(Some(free).filter(|free| free.bound.is_some()));
                best = best.max((room / PAGE * PAGE, index as u32));
            }
            let (room, device) = best;
            let len = (end - at).min(SPAN_MAX).min(room);
            if len == 0 {
                fail!(
                    PoolFull,
                    "{} more are needed to publish, and no device of the pool has room: {}",
                    ByteSize(end - at),
                    bound.unwrap_or(Free { bytes: 0, bound: None }).remedy()
                );
            }
            let span =
                Span { number, device, range: Extent { offset: at, len }, file: number, place: 0 };
            let path = spans::span_path(&core, span)?;
            let _ = fs::remove_file(&path); // without a row: left by a crash
            let mount = filesystem::admit(path.parent().expect("in a folder"), true)?;
            span::create(&path, len, 0o600, &mount)?;
            self.made.push(path);
            new.push(span);
            number += 1;
            at += len;
        }
        Ok(())
    }

    /// Gives the version its name: from here on everyone sees it. On error nothing has changed. The
    /// value otherwise says whether the name is on the medium, too.
    pub(crate) fn finish(mut self) -> Result<Result<()>> {
        let dead = self.trim()?;
        step!("publish.settled");
        let version = self.place.join("version");
        let mode = mode_of(&self.published)?;
        make_folder(&version, mode)?;
        make_folder(&version.join("catalog"), mode)?;
        {
            let inside = self.core.enter()?;
            inside.catalog().copy_compact(&version.join("catalog"))?;
        }
        step!("publish.copied");
        shut(&self.core);
        let owner = fs::metadata(&self.published);
        let owner =
            owner.map_err(|e| Error::os(format!("looking at {}", self.published.display()), &e))?;
        for path in self.made.iter().chain([&version.join("catalog/data.mdb")]) {
            close_file(path)?;
            folder::give(path, owner.uid(), owner.gid())?;
        }
        let toml = VersionFile {
            format: FORMAT,
            version: self.version,
            root: self.core.setup.root(),
            incompatible: Vec::new(),
        };
        write_toml(&version.join(REALM_FILE), &toml, FILE_MODE)?;
        let spans = self.made.iter().filter_map(|path| path.parent());
        let folders = [version.join("catalog"), version.clone()];
        for folder in spans.chain(folders.iter().map(PathBuf::as_path)) {
            sync_folder(folder)?;
        }
        for made in [version.join(REALM_FILE)].iter().chain(&folders) {
            folder::give(made, owner.uid(), owner.gid())?;
        }
        step!("publish.synced");
        let place = self.published.join(version_name(self.version));
        fs::rename(&version, &place)
            .map_err(|e| Error::os(format!("naming {}", place.display()), &e))?;
        self.done = true;
        step!("publish.renamed");
        let synced = sync_folder(&self.published);
        (self.told)();
        step!("publish.told");
        // The next publisher clears away what cannot be cleared now: this version is there. A
        // reader of an older one that misses something looks whether that one is there still; so
        // its spans go after it.
        let known = versions(&self.published).map(|(known, _)| known).unwrap_or_default();
        let older = known.into_iter().filter(|version| *version < self.version);
        older.for_each(|older| remove_version(&self.published, older));
        step!("publish.outdated");
        for path in dead {
            let _ = fs::remove_file(path);
        }
        step!("publish.cleared");
        Ok(synced)
    }

    /// Brings the index up to date and finds spans without a value; returns their files.
    fn trim(&mut self) -> Result<Vec<PathBuf>> {
        let inside = self.core.enter()?;
        index::maintain_all(&self.core, &inside)?;
        // Nobody else is here: a freed extent is free.
        self.core.commit(&inside, Headroom::Relief, |rows| {
            let floor = Floor { age: u64::MAX, ..Floor::default() };
            reclaim(rows.txn(), &floor, None, usize::MAX)?;
            rows.put(Table::Meta, LIMIT, &self.limit.to_le_bytes())
        })?;
        let mut dead = Vec::new();
        let gone = self.core.commit(&inside, Headroom::Relief, |rows| {
            let mut gone = Vec::new();
            for span in Span::all(rows)? {
                if span.has_file() && covers(rows.txn(), span.range)? {
                    let row = Span { device: Span::NO_DEVICE, ..span }.to_row();
                    rows.put(Table::Spans, &Span::key(span.number), &row)?;
                    gone.push(span);
                }
            }
            Ok(gone)
        })?;
        for span in gone {
            let path = spans::span_path(&self.core, span)?;
            self.made.retain(|made| *made != path);
            dead.push(path);
        }
        Ok(dead)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        shut(&self.core);
        self.core.space.arena.release();
        let _ = fs::remove_dir_all(&self.place);
        if !self.done {
            self.made.iter().for_each(|path| drop(fs::remove_file(path)));
        }
    }
}

/// Makes the working realm: empty, or beginning as the newest version.
fn begin_at(
    shared: &Setup,
    published: &Path,
    place: &Path,
    newest: Option<u64>,
    limit: u64,
) -> Result<Core> {
    make_folder(place, 0o700)?;
    let dir = place.join("work");
    make_folder(&dir, 0o700)?;
    for inner in ["catalog", "leases"] {
        make_folder(&dir.join(inner), 0o700)?;
    }
    let setup = Setup {
        dir,
        file_mode: 0o600,
        durable: false,
        id_prefix: 0,
        scope: Scope::Published,
        ..shared.clone()
    };
    let options = setup.catalog_options();
    match newest {
        None => create_catalog(&setup, limit)?,
        Some(newest) => {
            let source = published.join(version_name(newest)).join("catalog");
            Catalog::create_from(&setup.catalog(), &options, &source)?;
            let catalog = Catalog::open(&setup.catalog(), &options)?;
            catalog.growth().set_boot_id(boot_id());
        }
    }
    open(setup, Purpose::Use)
}

/// Takes an older version away, by name first: nobody finds half of it.
fn remove_version(published: &Path, version: u64) {
    let (name, going) = (version_name(version), format!("{MAKING}{version}"));
    if fs::rename(published.join(name), published.join(&going)).is_ok() {
        step!("publish.unnamed");
        let _ = fs::remove_dir_all(published.join(going));
    }
}

/// Clears away what dead publishers have left: versions unfinished or outdated, and files of spans
/// that the newest version does not have. Returns that.
fn clear_left(shared: &Setup, published: &Path, file: &PoolFile) -> Result<Option<u64>> {
    let (mut all, unfinished) = versions(published)?;
    let newest = all.pop();
    for place in unfinished {
        let _ = fs::remove_dir_all(place);
    }
    for version in all {
        remove_version(published, version);
    }
    let known = match newest {
        None => Vec::new(),
        Some(version) => {
            let catalog = published.join(version_name(version)).join("catalog");
            let catalog = Catalog::open_published(&catalog)?;
            let txn = catalog.read()?;
            Span::all(&mut txn.rows())?
        }
    };
    for device in &file.devices {
        let outer = device.join(&file.uuid).join(&shared.namespace);
        let Ok(entries) = fs::read_dir(outer.join(Scope::Published.as_str())) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("span-")?.parse().ok());
            let Some(number) = number else { continue };
            let span: Option<&Span> = known.get::<usize>(number);
            if span.is_none_or(|span| !span.has_file()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
    Ok(newest)
}

/// Syncs a file, and takes the right to write it away.
pub(super) fn close_file(path: &Path) -> Result<()> {
    let file = folder::own(path)?;
    let closed = file
        .sync_all()
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(FILE_MODE)))
        .and_then(|()| file.sync_all());
    closed.map_err(|e| Error::os(format!("closing {}", path.display()), &e))
}

pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    let synced = folder::open_folder(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|e| Error::os(format!("syncing {}", folder.display()), &e))
}

pub(super) fn mode_of(folder: &Path) -> Result<u32> {
    let meta = fs::metadata(folder);
    let meta = meta.map_err(|e| Error::os(format!("looking at {}", folder.display()), &e))?;
    Ok(meta.mode() & 0o7777)
}

/// The publish lock: a lock on the shared realm's folder, given up when dropped.
struct PublishLock {
    folder: File,
}

impl PublishLock {
    fn take(shared: &Path) -> Result<Self> {
        let opened = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(shared);
        match opened {
            Ok(folder) => {
                wait_for(&folder, shared, Duration::MAX)?;
                Ok(PublishLock { folder })
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(Error::new(
                Kind::Access,
                format!(
                    "only who may write what is shared in a namespace may publish in it ({}: {e})",
                    shared.display()
                ),
            )),
            Err(e) => Err(Error::os(format!("opening {}", shared.display()), &e)),
        }
    }
}

impl Drop for PublishLock {
    fn drop(&mut self) {
        // By name, not by closing: a child forked meanwhile has the same open file.
        let _ = self.folder.unlock();
    }
}

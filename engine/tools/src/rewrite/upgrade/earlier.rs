//! The earlier pool: its realms, kept from others, read page by page and checked.

use std::path::Path;

use super::super::compact::refuse_others;
use super::super::spans::lay_out;
use super::super::{MovedValue, VALUED};
use super::some_more;
use crate::verify::{Pages, SpanFiles};
use engram_base::checksum::{self, RunningChecksum};
use engram_base::error::{Error, Kind, Result};
use engram_base::fail;
use engram_base::faults::step;
use engram_base::scope::Scope;
use engram_base::user;
use engram_catalog::Table;
use engram_catalog::meta::meta_u64;
use engram_files::pool_file::{PoolFile, missing};
use engram_media::filesystem;
use engram_pool::{check_devices, check_mounted, namespace};
use engram_realm::compaction_lock::{CompactionLock, wait_for_it};
use engram_realm::{LIMIT, Setup};
use engram_records::extent::{Extent, PAGE};
use engram_records::index_mode::IndexMode;
use engram_records::object::{Record, Stored, version2};
use engram_space::extent::Span;

/// What a realm takes beside its rows and values: the least catalog, leases, small files.
const REALM_BYTES: u64 = 4 << 20;

/// A realm of the earlier pool, which nobody opens meanwhile.
pub(super) struct EarlierRealm {
    pub setup: Setup,
    pub scope: Scope,
    /// Whose it is, if it is private.
    pub user: u32,
    /// What it is called in messages.
    pub called: String,
    /// A published one has none: nobody writes there, and who publishes opens the shared one.
    lock: Option<CompactionLock>,
}

/// The earlier pool, as far as this user may read it.
pub(super) struct Earlier {
    namespaces: Vec<(String, Vec<EarlierRealm>)>,
    /// What this user may not read.
    pub skipped: Vec<String>,
}

/// All that is in a realm, but for the rows: they are read once more.
pub(super) struct FoundRealm<'e> {
    pub realm: &'e EarlierRealm,
    /// Values in extents, each with the place that it goes to.
    pub values: Vec<MovedValue>,
    /// The files that they lie in.
    pub files: SpanFiles,
    /// Where the new arena ends.
    pub end: u64,
    /// Objects that are not indexed.
    pub unindexed: u64,
    /// The sum over all records: see [`digest`].
    pub digest: u64,
    pages: u64,
}

/// A namespace, with what was found in its realms.
pub(super) struct FoundNamespace<'e> {
    pub name: &'e str,
    pub realms: Vec<FoundRealm<'e>>,
}

/// All of the earlier pool.
pub(super) struct EarlierContents<'e> {
    pub namespaces: Vec<FoundNamespace<'e>>,
}

impl Earlier {
    /// Keeps others from every realm; `Busy` names who is there. The caller has the pool lock.
    pub(super) fn lock(path: &Path, file: &PoolFile) -> Result<Self> {
        check_mounted(path, file)?;
        check_devices(path, file)?;
        let mount = filesystem::admit(path, true)?;
        let mut earlier = Earlier { namespaces: Vec::new(), skipped: Vec::new() };
        for name in namespace::names(path)? {
            let shared = namespace::setup(path, file, mount.clone(), &name);
            let mut setups = vec![(Scope::Shared, 0, shared)];
            for (user, setup) in namespace::private_setups(path, file, &mount, &name)? {
                setups.push((Scope::Private, user, setup));
            }
            let published = Scope::Published;
            let newest = namespace::realm_setup(path, file, mount.clone(), &name, published);
            setups.extend(newest.transpose().map(|setup| (published, 0, setup)));
            let mut realms = Vec::new();
            for (scope, user, setup) in setups {
                let called = match scope {
                    Scope::Shared => name.clone(),
                    Scope::Private => format!("{name} (private of user {user})"),
                    Scope::Published => format!("{name} (published)"),
                };
                match setup.and_then(|setup| EarlierRealm::lock(setup, user, called.clone())) {
                    Ok(realm) => realms.push(realm),
                    Err(error) if error.kind() == Kind::Access => earlier.skipped.push(called),
                    // An upgrade replaces the pool: of what it cannot read nothing is left out.
                    Err(error) => return Err(error.context(format!("namespace {called:?}"))),
                }
            }
            if !realms.is_empty() {
                earlier.namespaces.push((name, realms));
            }
        }
        step!("upgrade.locked");
        if earlier.namespaces.is_empty() && !earlier.skipped.is_empty() {
            fail!(
                Access,
                "nothing of the pool {} is {}'s to upgrade: ask the owners of {}",
                path.display(),
                user::shown(user::current()),
                earlier.skipped.join(", ")
            );
        }
        Ok(earlier)
    }

    /// Lets others in again, where the folder has another name by now.
    pub(super) fn leave(self) {
        let realms = self.namespaces.into_iter().flat_map(|(_, realms)| realms);
        realms.filter_map(|realm| realm.lock).for_each(CompactionLock::leave);
    }

    /// Reads and checks every page, and every record.
    pub(super) fn gather(&self, file: &PoolFile) -> Result<EarlierContents<'_>> {
        let mut namespaces = Vec::new();
        for (name, realms) in &self.namespaces {
            let found = realms.iter().map(|realm| {
                let found = realm.gather(file);
                found.map_err(|error| error.context(format!("namespace {:?}", realm.called)))
            });
            namespaces.push(FoundNamespace { name, realms: found.collect::<Result<_>>()? });
        }
        Ok(EarlierContents { namespaces })
    }
}

impl EarlierContents<'_> {
    /// The bytes that the new pool takes, and some for what is not known before.
    pub(super) fn room(&self) -> u64 {
        let realms = self.namespaces.iter().flat_map(|namespace| &namespace.realms);
        // What is published is written with free pages first, and then without.
        let copies = |found: &FoundRealm<'_>| 1 + u64::from(found.realm.setup.immutable);
        let catalog = |found: &FoundRealm<'_>| found.pages * PAGE * 5 / 4 * copies(found);
        realms.map(|found| found.end + catalog(found) + REALM_BYTES).sum()
    }
}

impl EarlierRealm {
    fn lock(setup: Setup, user: u32, called: String) -> Result<Self> {
        let scope = setup.scope;
        if setup.immutable {
            return Ok(EarlierRealm { setup, scope, user, called, lock: None });
        }
        refuse_others(&setup, "upgrading")?;
        // The process that had one is gone: it would have the pool lock.
        wait_for_it(&setup.dir)?;
        let lock = CompactionLock::take(&setup)?;
        refuse_others(&setup, "upgrading")?;
        Ok(EarlierRealm { setup, scope, user, called, lock: Some(lock) })
    }

    /// Hands every row of the tables that there still are to `take`, until it fails.
    pub(super) fn rows(
        &self,
        mut take: impl FnMut(Table, &[u8], &[u8]) -> Result<()>,
    ) -> Result<u64> {
        let pages = Pages::open_earlier(&self.setup.catalog().join("data.mdb"))
            .map_err(|error| missing(&self.setup.pool, &self.setup.dir, error))?;
        let mut taken = Ok(());
        let mut each = |table: Option<Table>, key: &[u8], row: &[u8]| {
            if let Some(table) = table
                && taken.is_ok()
            {
                taken = take(table, key, row);
            }
        };
        let checked = pages.walk(None, &mut each, &mut || ());
        if let Some(problem) = checked.problems.first() {
            fail!(Corrupt, "{problem}{}", some_more(checked.problems.len() - 1));
        }
        taken.map(|()| pages.last_page() + 1)
    }

    fn gather(&self, file: &PoolFile) -> Result<FoundRealm<'_>> {
        if !self.setup.immutable {
            // Opening these files says what is wrong with them.
            let _ = engram_catalog::roll_back_closed(
                &self.setup.catalog(),
                &self.setup.catalog_options(),
            );
        }
        let (mut values, mut spans, mut limit) = (Vec::new(), Vec::new(), u64::MAX);
        let (mut unindexed, mut sum) = (0, 0u64);
        let pages = self.rows(|table, key, row| {
            match table {
                Table::Objects | Table::Groups | Table::Chunks => {
                    let record = version2::parse_any(row)
                        .map_err(|error| error.context(format!("`{}` {key:02x?}", table.name())))?;
                    sum = sum.wrapping_add(digest(table, key, &record));
                    if let Stored::Contiguous { extent, nbytes, checksum } = record.stored {
                        let (key, to) = (key.to_vec(), extent.offset);
                        let word = checksum;
                        let head = None;
                        values.push(MovedValue {
                            table,
                            key,
                            from: extent,
                            nbytes,
                            word,
                            to,
                            head,
                        });
                    }
                    unindexed +=
                        u64::from(table == Table::Objects && record.index == IndexMode::None);
                }
                Table::Spans => match <[u8; 4]>::try_from(key) {
                    Ok(number) => spans.push(Span::from_row(u32::from_be_bytes(number), row)?),
                    Err(_) => fail!(Corrupt, "a key of `spans` has {} bytes", key.len()),
                },
                Table::Meta if key == LIMIT => limit = meta_u64(Some(row))?,
                _ => {}
            }
            Ok(())
        })?;
        check_apart(&mut values)?;
        if values.iter().any(|value| !VALUED.contains(&value.table)) {
            fail!(Corrupt, "a group has a value");
        }
        let end = lay_out(&mut values, limit);
        let files = self.files(file, &spans);
        Ok(FoundRealm { realm: self, values, files, end, unindexed, digest: sum, pages })
    }

    /// The files of spans; one that does not open is an error where it is needed.
    fn files(&self, file: &PoolFile, spans: &[Span]) -> SpanFiles {
        let place = |span: &Span| {
            let device = file.devices.get(span.device as usize)?;
            // On a devdax node all spans lie in one file.
            let in_folder = || self.setup.spans_on(device).join(format!("span-{}", span.file));
            Some((*span, if span.place == 0 { in_folder() } else { device.clone() }))
        };
        SpanFiles::open(spans.iter().filter(|span| span.has_file()).filter_map(place))
    }
}

/// Refuses two values of which one lies in the other.
fn check_apart(values: &mut [MovedValue]) -> Result<()> {
    values.sort_unstable_by_key(|value| value.from.offset);
    match values.windows(2).find(|two| two[0].from.end() > two[1].from.offset) {
        Some(two) => {
            let [one, next] = [two[0].from, two[1].from];
            fail!(Corrupt, "two values share bytes of the arena: {one:?}, {next:?}")
        }
        None => Ok(()),
    }
}

/// A number over all that a record says but for where its value lies, for sums that do not depend
/// on an order.
pub(super) fn digest(table: Table, key: &[u8], record: &Record<'_>) -> u64 {
    let stored = match record.stored {
        Stored::Contiguous { extent, nbytes, .. } => {
            let extent = Extent { offset: 0, len: extent.len };
            Stored::Contiguous { extent, nbytes, checksum: checksum::NONE }
        }
        stored => stored,
    };
    let mut running = RunningChecksum::new();
    for part in [table.name().as_bytes(), key, &Record { stored, ..*record }.encode()] {
        running.add(part);
    }
    running.word()
}

/// An error of a value's, with what it is of.
pub(super) fn of_value(value: &MovedValue, error: &Error) -> Error {
    let id = value.key.first_chunk().map_or(0, |id| u64::from_be_bytes(*id));
    let what = format!("the value of object {id:#x}, {} bytes: {}", value.nbytes, error.message());
    Error::new(Kind::Corrupt, what)
}

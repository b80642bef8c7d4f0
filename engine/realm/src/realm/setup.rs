//! The setup: what never changes of a realm while it is open, and where its parts lie.

use std::path::{Path, PathBuf};

use engram_base::error::Result;
use engram_base::id::Gid;
use engram_base::scope::Scope;
use engram_catalog as catalog;
use engram_files::folder::{
    check_own, check_real, check_theirs, make_for_namespace, make_for_spans, sync_names_above,
};
use engram_files::paths;
use engram_files::paths::within;
use engram_files::realm_file::Identity;
use engram_media::devdax;
use engram_media::emulated::Emulated;
use engram_media::filesystem::Mount;

/// What never changes of a realm.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with another")]
pub struct Setup {
    /// The realm's folder.
    pub dir: PathBuf,
    /// The pool's folder.
    pub pool: PathBuf,
    /// The pool's uuid.
    pub uuid: String,
    /// The namespace's name.
    pub namespace: String,
    /// The mode of files made in the realm.
    pub file_mode: u32,
    /// Whether every commit survives power loss.
    pub durable: bool,
    /// What the pool lies on.
    pub mount: Mount,
    /// The catalog's map size.
    pub map_size: u64,
    /// The random upper bits of ids born here.
    pub id_prefix: u64,
    /// The namespace's root group: the same GID in each of its realms.
    pub root: Gid,
    /// Who sees what is in the realm.
    pub scope: Scope,
    /// Whether values get checksums.
    pub checksums: bool,
    /// Whether copying takes as long as on persistent memory.
    pub emulated: bool,
    /// A published version: never written again, so there is no lease, no lock and nothing to
    /// reclaim, and every user that may read its files may use it.
    pub immutable: bool,
}

impl Setup {
    /// What tells the realm from another in its folder.
    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity {
            dir: &self.dir,
            pool: &self.pool,
            uuid: &self.uuid,
            id_prefix: self.id_prefix,
            scope: self.scope,
        }
    }

    /// Where leases are.
    pub fn leases(&self) -> PathBuf {
        self.dir.join("leases")
    }

    /// The device at whose pace it copies, if it is to keep one.
    pub(crate) fn device_to_emulate(&self) -> Result<Option<Emulated>> {
        self.emulated.then(|| Emulated::open(&self.pool)).transpose()
    }

    /// Where the catalog is.
    pub fn catalog(&self) -> PathBuf {
        self.dir.join("catalog")
    }

    /// How the catalog is opened.
    pub fn catalog_options(&self) -> catalog::Options {
        catalog::Options {
            map_size: self.map_size,
            durable: self.durable,
            file_mode: self.file_mode,
            ..catalog::Options::default()
        }
    }

    /// Whether devdax nodes serve this realm. A node is one file with one owner and one mode.
    pub(crate) fn has_nodes(&self) -> bool {
        self.namespace == paths::DEFAULT && self.scope == Scope::Shared
    }

    /// What a devdax node that serves this realm carries.
    pub(crate) fn label(&self) -> devdax::Label {
        devdax::Label { pool: self.uuid.clone(), namespace: self.namespace.clone() }
    }

    /// The root group.
    pub fn root(&self) -> Gid {
        self.root
    }

    /// The user whose private realm it is.
    fn private_user(&self) -> Option<u32> {
        match self.scope {
            Scope::Private => self.dir.file_name()?.to_str()?.parse().ok(),
            _ => None,
        }
    }

    /// Where its spans lie on a device.
    pub fn spans_on(&self, device: &Path) -> PathBuf {
        let outer = device.join(&self.uuid).join(&self.namespace);
        outer.join(within(self.scope, self.private_user().unwrap_or_default()))
    }

    /// Refuses a folder for spans on a device that is not the pool's, and not the user's own if the
    /// realm is. Others may have made one in its place on a device that was added later.
    pub(crate) fn check_spans(&self, spans: &Path) -> Result<()> {
        let namespace = engram_files::paths::place(&self.pool, &self.namespace);
        let (outer, above) = self.around(spans);
        check_theirs(&namespace, above)?;
        check_theirs(&namespace, outer)?;
        check_real(outer, spans)?;
        self.private_user().map_or(Ok(()), |user| check_own(spans, user).map(|_| ()))
    }

    /// Returns the folders that the namespace and the pool have on a device, around its folder for
    /// spans.
    fn around<'p>(&self, spans: &'p Path) -> (&'p Path, &'p Path) {
        let depth = if self.scope == Scope::Private { 2 } else { 1 };
        let outer = spans.ancestors().nth(depth).expect("<device>/<uuid>/<namespace>");
        (outer, outer.parent().expect("<device>/<uuid>"))
    }

    /// Makes the folder for spans on a device, if it has none there yet.
    pub(crate) fn make_for_spans(&self, spans: &Path) -> Result<()> {
        if spans.is_dir() {
            return sync_names_above(spans);
        }
        let namespace = engram_files::paths::place(&self.pool, &self.namespace);
        make_for_namespace(&namespace, self.around(spans).0)?;
        make_for_spans(&self.dir, spans)
    }
}

//! The catalog's tables. Their names are part of the format.

/// A table of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Table {
    /// OID → record.
    Objects,
    /// GID → record.
    Groups,
    /// (parent GID, name) → OID or GID.
    Names,
    /// Attribute key ↔ its number.
    Keys,
    /// Span number → its device, offset and length.
    Spans,
    /// Free extents by where they lie.
    ExtentsByOffset,
    /// Free extents by how long they are.
    ExtentsBySize,
    /// Extents reserved, or freed and perhaps still seen.
    ExtentsPending,
    /// What there is one of.
    Meta,
    /// OID of an object whose attributes are indexed, but in no segment yet, and in no range.
    IndexTail,
    /// Block of ids → from which on its objects are in no segment yet.
    IndexTailRanges,
    /// (segment, part) → a sealed segment's head or one block of its columns.
    IndexSegments,
    /// Segment → which of its positions are dead.
    IndexDead,
    /// (column, segments) → what each of these segments holds of the column.
    IndexZones,
    /// (column, run, block) → sorted values of a nearly unique key.
    IndexRuns,
    /// Family → its attribute groups, keys and bounds.
    IndexFamilies,
    /// GID → how the objects below it are indexed.
    IndexSettings,
    /// OID of an object that is to be indexed.
    Queue,
    /// Move between realms of a namespace, by its number: where it goes, and who does it.
    Transfers,
    /// OID of an object that is on its way to another realm → the move's number.
    Leaving,
    /// Number of a move that has arrived here and is not yet ended where it began.
    Received,
    /// Id of a record that is read-only → group or object, and the id.
    ReadOnly,
    /// GID of a mirror → group, and the GID.
    Mirrors,
    /// (OID of an array, where a chunk is in its grid), or (OID of a file, where a segment is in
    /// it) → the record of the chunk or segment.
    Chunks,
    /// (OID, parent GID, name) of each further name of an object.
    Links,
    /// OID → transaction and record of an object without a name that somebody may have open.
    Orphans,
    /// GID → when names in the group last changed, and how many groups are in it.
    GroupTimes,
}

impl Table {
    /// How many tables there are.
    pub const COUNT: usize = 27;

    /// Every table, in the order of its number.
    pub const ALL: [Table; Table::COUNT] = [
        Table::Objects,
        Table::Groups,
        Table::Names,
        Table::Keys,
        Table::Spans,
        Table::ExtentsByOffset,
        Table::ExtentsBySize,
        Table::ExtentsPending,
        Table::Meta,
        Table::IndexTail,
        Table::IndexTailRanges,
        Table::IndexSegments,
        Table::IndexDead,
        Table::IndexZones,
        Table::IndexRuns,
        Table::IndexFamilies,
        Table::IndexSettings,
        Table::Queue,
        Table::Transfers,
        Table::Leaving,
        Table::Received,
        Table::ReadOnly,
        Table::Mirrors,
        Table::Chunks,
        Table::Links,
        Table::Orphans,
        Table::GroupTimes,
    ];

    /// Whether new rows have the greatest keys, as a rule: those that begin with a new id.
    pub(super) const fn grows_at_its_end(self) -> bool {
        matches!(self, Table::Objects | Table::IndexTail | Table::Queue | Table::Chunks)
    }

    /// Its name on media.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Objects => "objects",
            Table::Groups => "groups",
            Table::Names => "names",
            Table::Keys => "keys",
            Table::Spans => "spans",
            Table::ExtentsByOffset => "extents_by_offset",
            Table::ExtentsBySize => "extents_by_size",
            Table::ExtentsPending => "extents_pending",
            Table::Meta => "meta",
            Table::IndexTail => "index_tail",
            Table::IndexTailRanges => "index_tail_ranges",
            Table::IndexSegments => "index_segments",
            Table::IndexDead => "index_dead",
            Table::IndexZones => "index_zones",
            Table::IndexRuns => "index_runs",
            Table::IndexFamilies => "index_families",
            Table::IndexSettings => "index_settings",
            Table::Queue => "queue",
            Table::Transfers => "transfers",
            Table::Leaving => "leaving",
            Table::Received => "received",
            Table::ReadOnly => "read_only",
            Table::Mirrors => "mirrors",
            Table::Chunks => "chunks",
            Table::Links => "links",
            Table::Orphans => "orphans",
            Table::GroupTimes => "group_times",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn tables_are_numbered_in_order_and_named_once() {
        for (place, table) in Table::ALL.into_iter().enumerate() {
            assert_eq!(table as usize, place);
            assert!(Table::ALL[..place].iter().all(|other| other.name() != table.name()));
        }
    }
}

//! Totals: figures of all objects found, or of each group of those that have the same.
//!
//! Columns say what most objects have: a segment's hits are taken all at once, by the codes of
//! dictionaries and by plain numbers. What only records say is taken one by one. Groups by what a
//! group above or an owner has are formed by its number first, and put together in the end.
//!
//! *Invariant*: an answer does not depend on the order in which objects come by, so not on the
//! index: sums are exact (`exact.rs`), equal keys of unlike kinds have one face, and whether values
//! are unlike is asked of each group as a whole.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::answer::{Figure, TotalsAnswer};
use super::ast::{Direction, Function, Query};
use super::compile::{About, GroupField};
use super::fault::Fault;
use super::fields::{FieldCells, RowCells, Scattered};
use super::figures::{GroupFigures, GroupOf, Unlike, face};
use super::record::Judge;
use super::sealed::SearchedSegment;
use super::zones::{How, NONE};
use engram_base::error::{Error, Result};
use engram_catalog::ReadTxn;
use engram_columns::cell::{Cell, push_order};
use engram_columns::column_key::{ColumnKey, unsigned};
use engram_columns::runs::SortedRuns;
use engram_columns::segment::{Bitmap, NO_CELL, UNSURE_CELL};
use engram_index::directory::SegmentEntry;
use engram_records::object::Record;

/// What is wrong with a value that no group can have the same of.
const NO_GROUPS: &str = "has values that equal nothing (arrays, complex numbers, structures, NaT, \
                         durations, bytes that are no text), so they form no groups: leave their \
                         objects out, as in where x <= inf for numbers, or group by something else";
/// So many fields form groups at most.
pub(crate) const GROUPED_MAX: usize = 7;
/// So many entries of runs are read in the time that one record takes.
const ENTRIES_PER_RECORD: u64 = 16;

/// What a measure is of.
#[derive(Clone, Debug)]
enum MeasureOf {
    /// Objects.
    Objects,
    /// What they have; `None` is a key that none has.
    Field(Option<About>),
}

/// What is worked out, with keys as numbers.
#[derive(Clone, Debug)]
pub struct TotalsPlan {
    /// What the objects of a group have the same of; `None` is a key that no object has.
    by: Vec<Option<About>>,
    measures: Vec<MeasurePlan>,
    /// The columns that say all of that, if columns do.
    columns: Option<Vec<ColumnKey>>,
    /// The query, and where in it each field of the groups and each measure stands.
    text: String,
    spots: Vec<Range<usize>>,
    names: Vec<String>,
    order: Vec<(usize, Direction)>,
    offset: usize,
    limit: usize,
}

#[derive(Clone, Debug)]
struct MeasurePlan {
    function: Function,
    of: MeasureOf,
}

impl TotalsPlan {
    /// Makes what a query works out ready.
    pub(crate) fn new(
        query: &Query,
        field: &mut dyn FnMut(&super::ast::QueryField) -> Result<Option<About>>,
    ) -> Result<Option<Self>> {
        let Some(totals) = &query.totals else { return Ok(None) };
        let by = totals.by.iter().map(&mut *field).collect::<Result<Vec<_>>>()?;
        let mut measures = Vec::with_capacity(totals.measures.len());
        for measure in &totals.measures {
            let of = match &measure.field {
                Some(named) => MeasureOf::Field(field(named)?),
                None => MeasureOf::Objects,
            };
            measures.push(MeasurePlan { function: measure.function, of });
        }
        let mut columns = Some(Vec::new());
        let sources = by.iter().map(|about| (about, true));
        let measured = measures.iter().filter_map(|measure| match &measure.of {
            MeasureOf::Field(about) => Some(about),
            MeasureOf::Objects => None,
        });
        for (about, groups) in sources.chain(measured.map(|about| (about, false))) {
            let Some(about) = about else { continue };
            let column = match How::of(about) {
                How::Cells(key) => Some(key),
                how if groups => how.column(),
                _ => None,
            };
            columns = columns.zip(column).map(|(mut columns, column)| {
                if !columns.contains(&column) {
                    columns.push(column);
                }
                columns
            });
        }
        let (text, spots) = super::display::totals_spots(query);
        let names = totals.by.iter().map(ToString::to_string);
        let names = names.chain(totals.measures.iter().map(ToString::to_string)).collect();
        Ok(Some(TotalsPlan {
            by,
            measures,
            columns,
            text,
            spots,
            names,
            order: totals.order.clone(),
            offset: usize::try_from(query.offset).unwrap_or(usize::MAX),
            limit: query.limit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX)),
        }))
    }

    /// Where in the list of columns that of a field is.
    fn column(&self, about: Option<&About>) -> Option<usize> {
        let column = How::of(about?).column()?;
        self.columns.as_ref()?.iter().position(|known| *known == column)
    }

    /// Whether groups are formed by a number that stands for what they have the same.
    fn is_number(&self, about: Option<&About>) -> bool {
        self.columns.is_some() && matches!(about.map(How::of), Some(How::Group(_) | How::Owner))
    }

    /// What is wrong with a value in the place of a field of the groups or a measure.
    fn refuse(&self, nth: usize, message: &str) -> Error {
        let message = format!("{} {message}", self.names[nth]);
        Fault { at: self.spots[nth].clone(), message }.explain(&self.text)
    }
}

/// Figures so far.
#[derive(Debug)]
pub struct Tally {
    plan: Arc<TotalsPlan>,
    /// By column: the cells of its runs, where it has some.
    scattered: Arc<Vec<Option<Scattered>>>,
    /// By what they have the same, as bytes.
    groups: HashMap<Vec<u8>, u32>,
    /// What each group has the same.
    keys: Vec<Vec<Option<Cell<'static>>>>,
    /// By measure.
    figures: Vec<GroupFigures>,
    /// How many objects were taken in.
    pub objects: u64,
}

fn order_of(cell: Option<&Cell<'_>>, out: &mut Vec<u8>) {
    out.push(u8::from(cell.is_none()));
    if let Some(cell) = cell {
        push_order(cell, out);
    }
}

impl Tally {
    /// Nothing yet.
    pub fn new(plan: &Arc<TotalsPlan>) -> Self {
        let figures =
            plan.measures.iter().map(|measure| GroupFigures::new(measure.function)).collect();
        let scattered = Arc::new(Vec::new());
        let (plan, groups, keys) = (Arc::clone(plan), HashMap::new(), Vec::new());
        Tally { plan, scattered, groups, keys, figures, objects: 0 }
    }

    /// The same, with nothing known yet.
    pub(crate) fn anew(&self) -> Self {
        Tally { scattered: Arc::clone(&self.scattered), ..Tally::new(&self.plan) }
    }

    /// Whether columns say all that is asked for.
    pub(crate) fn by_columns(&self) -> bool {
        self.plan.columns.is_some()
    }

    /// The columns that are read.
    pub(crate) fn columns(&self) -> Vec<ColumnKey> {
        self.plan.columns.clone().unwrap_or_default()
    }

    /// Brings the cells of runs to the segments that are to be searched by these verdicts.
    pub(crate) fn prepare(
        &mut self,
        txn: &ReadTxn<'_>,
        directory: &[SegmentEntry],
        verdicts: &[u8],
    ) -> Result<()> {
        let open = |place: usize| verdicts[place] != NONE;
        let rows = directory.iter().enumerate().filter(|(place, _)| open(*place));
        let rows: u64 = rows.map(|(_, entry)| u64::from(entry.rows)).sum();
        let mut scattered = Vec::new();
        for key in self.columns() {
            let entries = SortedRuns::read(txn, key)?.entries();
            let worth = entries > 0 && rows.saturating_mul(ENTRIES_PER_RECORD) > entries;
            let cells = worth.then(|| Scattered::new(txn, key, directory, &open));
            scattered.push(cells.transpose()?);
        }
        self.scattered = Arc::new(scattered);
        Ok(())
    }

    /// The number of the group of those that have this.
    fn group(&mut self, cells: &[Option<Cell<'_>>]) -> Result<u32> {
        let mut bytes = Vec::new();
        for (nth, cell) in cells.iter().enumerate() {
            if matches!(cell, Some(Cell::Other)) {
                return Err(self.plan.refuse(nth, NO_GROUPS));
            }
            order_of(cell.as_ref(), &mut bytes);
        }
        if let Some(group) = self.groups.get(&bytes) {
            let known = &mut self.keys[*group as usize];
            for (known, cell) in known.iter_mut().zip(cells) {
                // A whole number is the face of the equal one with a point.
                if let (Some(Cell::Float(_)), Some(Cell::Int(_) | Cell::Big(_))) = (&known, cell) {
                    *known = cell.as_ref().map(face);
                }
            }
            return Ok(*group);
        }
        let group = self.keys.len() as u32;
        self.groups.insert(bytes, group);
        self.keys.push(cells.iter().map(|cell| cell.as_ref().map(face)).collect());
        self.figures.iter_mut().for_each(GroupFigures::begin);
        Ok(group)
    }

    /// Takes in an object by its record.
    pub(crate) fn record(&mut self, judge: &mut Judge<'_>, record: &Record<'_>) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        self.objects += 1;
        let mut cell = |about: Option<&About>| match about {
            None => Ok(None),
            Some(About::Group(_)) if plan.is_number(about) => Ok(Some(unsigned(record.parent))),
            Some(_) if plan.is_number(about) => Ok(Some(Cell::Int(i64::from(record.owner)))),
            Some(about) => judge.order_cell(about, record),
        };
        let by = plan.by.iter().map(|about| cell(about.as_ref())).collect::<Result<Vec<_>>>()?;
        let group = self.group(&by)? as usize;
        for (nth, measure) in plan.measures.iter().enumerate() {
            match &measure.of {
                MeasureOf::Objects => self.figures[nth].count(group, 1),
                MeasureOf::Field(about) => {
                    if let Some(found) = cell(about.as_ref())? {
                        self.take(nth, group, &found)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes in one value of a measure's field.
    fn take(&mut self, nth: usize, group: usize, cell: &Cell<'_>) -> Result<()> {
        self.figures[nth].take(group, cell).map_err(|unlike| self.unlike(nth, &unlike))
    }

    fn unlike(&self, nth: usize, unlike: &Unlike) -> Error {
        let message = match unlike {
            Unlike::NoNumber(class) => format!(
                "takes numbers, and some objects have {class} there: take count, min, max or \
                 distinct, or leave them out, as in where x <= inf"
            ),
            Unlike::Classes(one, other) => format!(
                "takes values of one type, and some objects have {one}, others {other}: leave one \
                 of them out, as in where x <= inf for numbers, or where x >= \"\" for text"
            ),
            Unlike::Nothing => {
                "takes single values that have an order, and some objects have others there \
                 (arrays, complex numbers, structures, NaT, durations, bytes that are no text): \
                 leave them out, as in where x <= inf for numbers, or where x >= '0001' for times, \
                 or take count"
                    .to_owned()
            }
        };
        self.plan.refuse(self.plan.by.len() + nth, &message)
    }

    /// Takes in hits by their positions in a segment, whose parts are at hand; those that only
    /// their records tell of.
    pub(crate) fn hits(
        &mut self,
        piece: &SearchedSegment<'_>,
        hits: &Bitmap,
    ) -> Result<Option<Bitmap>> {
        let plan = Arc::clone(&self.plan);
        let scattered = Arc::clone(&self.scattered);
        let mut left = Bitmap::new(piece.segment.len());
        let mut fields = Vec::new();
        for (nth, key) in plan.columns.iter().flatten().enumerate() {
            let runs = scattered.get(nth).and_then(Option::as_ref);
            let is_key = plan.by.iter().any(|about| plan.column(about.as_ref()) == Some(nth));
            let field = FieldCells::read(piece, *key, runs, is_key)?;
            if let Some(unsure) = &field.unsure {
                left.or(unsure);
            }
            fields.push(field);
        }
        left.and(hits);
        let mut rows = hits.clone();
        rows.and_not(&left);
        let rows = rows.positions();
        if !rows.is_empty() {
            self.objects += rows.len() as u64;
            let groups = self.groups_of(&fields, &rows)?;
            for nth in 0..plan.measures.len() {
                self.measure(nth, &fields, &rows, &groups)?;
            }
        }
        Ok((!left.is_empty()).then_some(left))
    }

    /// Which group each row is of.
    fn groups_of(&mut self, fields: &[FieldCells<'_>], rows: &[usize]) -> Result<GroupOf> {
        let plan = Arc::clone(&self.plan);
        if plan.by.is_empty() {
            return Ok(GroupOf::One(self.group(&[])?));
        }
        let by: Vec<_> = plan
            .by
            .iter()
            .map(|about| plan.column(about.as_ref()).map(|at| Coded::new(&fields[at])))
            .collect();
        // Rows that lie together have the same of a key mostly, or the same few.
        if by.iter().flatten().all(Coded::is_constant) {
            let found = by.iter().map(|coded| coded.as_ref().and_then(|c| c.cell(rows[0])));
            let cells: Vec<_> = found.collect();
            return Ok(GroupOf::One(self.group(&cells)?));
        }
        if let [Some(coded)] = by.as_slice() {
            return self.groups_of_one(coded, rows);
        }
        let mut known = KnownGroups::new(by.iter().flatten().map(Coded::len));
        let mut groups = Vec::with_capacity(rows.len());
        for at in rows {
            let mut code = 0_u128;
            for coded in by.iter().flatten() {
                code = code * u128::from(coded.len()) + u128::from(coded.code(*at));
            }
            let group = known.of(code);
            if *group == NO_CELL {
                let found = by.iter().map(|coded| coded.as_ref().and_then(|coded| coded.cell(*at)));
                let cells: Vec<_> = found.collect();
                *group = self.group(&cells)?;
            }
            groups.push(*group);
        }
        Ok(GroupOf::Each(groups))
    }

    /// The same, of one field alone.
    fn groups_of_one(&mut self, coded: &Coded<'_, '_>, rows: &[usize]) -> Result<GroupOf> {
        let mut known = vec![NO_CELL; coded.len() as usize];
        let (codes, none) = coded.codes();
        let mut failed = None;
        let groups = rows.iter().map(|at| {
            let code = codes.get(*at).map_or(none, |code| none.min(*code as usize));
            if known[code] == NO_CELL {
                known[code] = self.group(&[coded.cell(*at)]).unwrap_or_else(|error| {
                    failed = Some(error);
                    0
                });
            }
            known[code]
        });
        let groups = groups.collect();
        match failed {
            Some(error) => Err(error),
            None => Ok(GroupOf::Each(groups)),
        }
    }

    /// Takes in a measure's field of some rows.
    fn measure(
        &mut self,
        nth: usize,
        fields: &[FieldCells<'_>],
        rows: &[usize],
        groups: &GroupOf,
    ) -> Result<()> {
        let plan = Arc::clone(&self.plan);
        let measure = &plan.measures[nth];
        let figures = &mut self.figures[nth];
        let MeasureOf::Field(about) = &measure.of else {
            figures.count_rows(rows, groups, |_| true);
            return Ok(());
        };
        let Some(field) = plan.column(about.as_ref()).map(|at| &fields[at]) else { return Ok(()) };
        let has = |at: usize| field.sure.as_ref().is_none_or(|sure| sure.contains(at));
        let sums = matches!(measure.function, Function::Sum | Function::Mean);
        if let (true, RowCells::Numbers(numbers)) = (sums, &field.cells) {
            let added = match &field.sure {
                Some(_) => figures.add_rows(numbers, rows, groups, has),
                None => figures.add_rows(numbers, rows, groups, |_| true),
            };
            return added.map_err(|unlike| self.unlike(nth, &unlike));
        }
        if measure.function == Function::Count {
            figures.count_rows(rows, groups, has);
            return Ok(());
        }
        if let RowCells::Coded(cells, codes) = &field.cells
            && !sums
        {
            // Each cell counts once for each group.
            let mut seen = HashSet::new();
            for (row, at) in rows.iter().enumerate() {
                let (code, group) = (codes[*at], groups.of(row));
                if code < UNSURE_CELL && seen.insert((code, group)) {
                    self.take(nth, group, &cells[code as usize])?;
                }
            }
            return Ok(());
        }
        for (row, at) in rows.iter().enumerate() {
            if let Some(Some(cell)) = field.slot(*at) {
                self.take(nth, groups.of(row), &cell)?;
            }
        }
        Ok(())
    }

    /// Takes in what another knows.
    pub fn unite(&mut self, other: &Tally) -> Result<()> {
        self.objects += other.objects;
        for (from, key) in other.keys.iter().enumerate() {
            let group = self.group(key)? as usize;
            for nth in 0..self.figures.len() {
                self.unite_figure(nth, group, &other.figures[nth], from)?;
            }
        }
        Ok(())
    }

    fn unite_figure(
        &mut self,
        nth: usize,
        group: usize,
        other: &GroupFigures,
        from: usize,
    ) -> Result<()> {
        let united = self.figures[nth].unite(group, other, from);
        united.map_err(|unlike| self.unlike(nth, &unlike))
    }

    /// Puts what the numbers of groups and owners stand for in their place.
    pub fn told(self, judge: &mut Judge<'_>) -> Result<Self> {
        let plan = Arc::clone(&self.plan);
        if !plan.by.iter().any(|about| plan.is_number(about.as_ref())) {
            return Ok(self);
        }
        let mut told = Tally::new(&plan);
        told.objects = self.objects;
        for (from, key) in self.keys.iter().enumerate() {
            let mut cells = Vec::with_capacity(key.len());
            for (about, cell) in plan.by.iter().map(Option::as_ref).zip(key) {
                cells.push(match (about, cell) {
                    (Some(About::Group(field)), Some(gid)) if plan.is_number(about) => {
                        group_cell(judge, field, gid)?
                    }
                    (Some(_), Some(uid)) if plan.is_number(about) => judge.owner_cell(uid),
                    _ => cell.clone(),
                });
            }
            let group = told.group(&cells)? as usize;
            for nth in 0..told.figures.len() {
                told.unite_figure(nth, group, &self.figures[nth], from)?;
            }
        }
        Ok(told)
    }

    /// The rows, in the order asked for.
    pub fn rows(mut self, snapshot: u64) -> Result<TotalsAnswer> {
        let plan = Arc::clone(&self.plan);
        if plan.by.is_empty() {
            // Of no objects there are figures, too.
            self.group(&[])?;
        }
        let mut keyed: Vec<(&Vec<u8>, u32)> = self.groups.iter().map(|(k, g)| (k, *g)).collect();
        keyed.sort_unstable();
        let row = |(_, group): (&Vec<u8>, u32)| {
            let group = group as usize;
            let keys = self.keys[group].iter().map(|cell| cell.as_ref().and_then(Figure::of));
            let figures = self.figures.iter().zip(&plan.measures);
            let figures = figures.map(|(all, measure)| all.figure(group, measure.function));
            keys.chain(figures).collect::<Vec<_>>()
        };
        let mut rows: Vec<Vec<Option<Figure>>> = keyed.into_iter().map(row).collect();
        for (column, direction) in plan.order.iter().rev() {
            let descending = *direction == Direction::Descending;
            rows.sort_by(|a, b| {
                Figure::order(a[*column].as_ref(), b[*column].as_ref(), descending)
            });
        }
        rows.drain(..plan.offset.min(rows.len()));
        rows.truncate(plan.limit);
        Ok(TotalsAnswer { columns: plan.names.clone(), rows, snapshot })
    }
}

fn group_cell(
    judge: &mut Judge<'_>,
    field: &GroupField,
    gid: &Cell<'_>,
) -> Result<Option<Cell<'static>>> {
    judge.group_cell(field, super::order::group_number(gid))
}

/// The groups of a segment's rows, by the codes of their fields.
enum KnownGroups {
    /// By the code itself.
    Few(Vec<u32>),
    Many(HashMap<u128, u32>),
}

impl KnownGroups {
    /// More codes than so many are not listed.
    const FEW: u128 = 1 << 17;

    /// For fields of so many codes each. (A code has 17 bits at most: [`GROUPED_MAX`] fit.)
    fn new(lens: impl Iterator<Item = u64>) -> Self {
        match lens.map(u128::from).product::<u128>() {
            codes if codes <= Self::FEW => KnownGroups::Few(vec![NO_CELL; codes as usize]),
            _ => KnownGroups::Many(HashMap::new()),
        }
    }

    #[inline]
    fn of(&mut self, code: u128) -> &mut u32 {
        match self {
            KnownGroups::Few(groups) => &mut groups[code as usize],
            KnownGroups::Many(groups) => groups.entry(code).or_insert(NO_CELL),
        }
    }
}

/// A field of groups, as a number for what each row has.
enum Coded<'f, 't> {
    /// Numbers of a dictionary.
    Dictionary { field: &'f FieldCells<'t>, codes: &'f [u32], len: u64 },
    /// A number for each different cell.
    Numbered { field: &'f FieldCells<'t>, codes: Vec<u32>, len: u64 },
}

impl<'f, 't> Coded<'f, 't> {
    fn new(field: &'f FieldCells<'t>) -> Self {
        if let RowCells::Coded(cells, codes) = &field.cells {
            return Coded::Dictionary { field, codes, len: cells.len() as u64 + 1 };
        }
        let rows = match &field.cells {
            RowCells::Numbers(numbers) => numbers.len(),
            RowCells::Loose(cells) => cells.len(),
            _ => 0,
        };
        let mut known: HashMap<Vec<u8>, u32> = HashMap::new();
        let mut codes = Vec::with_capacity(rows);
        for at in 0..rows {
            codes.push(match field.slot(at) {
                Some(Some(cell)) => {
                    let mut bytes = Vec::new();
                    push_order(&cell, &mut bytes);
                    let next = known.len() as u32;
                    *known.entry(bytes).or_insert(next)
                }
                _ => NO_CELL,
            });
        }
        Coded::Numbered { field, codes, len: known.len() as u64 + 1 }
    }

    /// Whether every row has the same of it.
    fn is_constant(&self) -> bool {
        let (Coded::Dictionary { field, .. } | Coded::Numbered { field, .. }) = self;
        let one = matches!(&field.cells, RowCells::Coded(cells, _) if cells.len() == 1);
        one && field.sure.is_none() || matches!(field.cells, RowCells::Nothing)
    }

    /// More than any code.
    fn len(&self) -> u64 {
        match self {
            Coded::Dictionary { len, .. } | Coded::Numbered { len, .. } => *len,
        }
    }

    #[inline]
    fn code(&self, at: usize) -> u64 {
        let (codes, none) = self.codes();
        codes.get(at).map_or(none, |code| none.min(*code as usize)) as u64
    }

    /// The codes, and the one for rows without the field: any that is no less is the same.
    #[inline]
    fn codes(&self) -> (&[u32], usize) {
        match self {
            Coded::Dictionary { codes, len, .. } => (codes, *len as usize - 1),
            Coded::Numbered { codes, len, .. } => (codes, *len as usize - 1),
        }
    }

    fn cell(&self, at: usize) -> Option<Cell<'t>> {
        let (Coded::Dictionary { field, .. } | Coded::Numbered { field, .. }) = self;
        field.slot(at).flatten()
    }
}

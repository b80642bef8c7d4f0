//! Projections: named fields of many objects, in columns of values as they were stored.
//!
//! Cells have no dtype; a segment says which kind the values of a column were, if they were of one
//! (`value_kind.rs`). What it does not say, and what has no cell, is read from records. So a column
//! comes in parts, one for each kind of value in it, and each part says whose values it has.

use std::collections::HashMap;

use super::ast::Builtin;
use super::compile::{About, GroupField, Parts};
use super::fields::{FieldCells, RowCells};
use super::many::{RowAt, Told};
use super::order::{fields_of, row_cell};
use super::record::Judge;
use super::run::Search;
use engram_base::error::Result;
use engram_base::id::Oid;
use engram_columns::cell::Cell;
use engram_columns::column_key::{ColumnKey, GROUP};
use engram_columns::segment::{NO_CELL, Numbers, UNSURE_CELL};
use engram_columns::value_kind::ValueKind;
use engram_records::attrs::{self, KeyId, Value};
use engram_records::object::Record;

/// What is asked of each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WantedField<K = String> {
    /// An attribute, of an object of mode `none` too.
    Attr(K),
    /// A built-in field; the owner by uid.
    Builtin(Builtin),
    /// The group that holds it, by its number.
    Parent,
}

/// What objects have of the fields asked for.
#[derive(Debug, Default)]
pub struct Projection {
    /// By field.
    pub columns: Vec<Vec<ColumnPart>>,
    /// The places of objects that are gone, ascending.
    pub gone: Vec<u32>,
}

/// Values of one kind.
#[derive(Debug)]
pub struct ColumnPart {
    /// Whose they are: places among the objects, each once.
    pub rows: Vec<u32>,
    /// In the order of the rows.
    pub values: PartValues,
}

/// Values of a part.
#[derive(Debug)]
pub enum PartValues {
    /// Of one width, one behind the other.
    Fixed(ValueKind, Vec<u8>),
    /// Strings: each different one once, and which one each row has.
    Texts(Vec<String>, Vec<u32>),
    /// Whatever they are.
    Values(Vec<Value>),
}

/// A column on its way.
struct ProjectedColumn {
    wanted: WantedField<Option<KeyId>>,
    /// What says it, where it is no attribute.
    about: Option<About>,
    fixed: Vec<(ValueKind, Vec<u32>, Vec<u8>)>,
    text_rows: Vec<u32>,
    texts: Vec<String>,
    codes: Vec<u32>,
    numbers: HashMap<String, u32>,
    value_rows: Vec<u32>,
    values: Vec<Value>,
}

impl ProjectedColumn {
    fn new(wanted: WantedField<Option<KeyId>>) -> Self {
        let about = match &wanted {
            WantedField::Attr(key) => key.map(About::Attr),
            WantedField::Parent => None,
            WantedField::Builtin(builtin) => Some(match builtin {
                Builtin::Name => About::Name,
                Builtin::Path => About::Path(Box::new(Parts(None))),
                Builtin::Group => About::Group(GroupField::Path),
                builtin => About::Builtin(*builtin),
            }),
        };
        ProjectedColumn {
            wanted,
            about,
            fixed: Vec::new(),
            text_rows: Vec::new(),
            texts: Vec::new(),
            codes: Vec::new(),
            numbers: HashMap::new(),
            value_rows: Vec::new(),
            values: Vec::new(),
        }
    }

    /// The columns that say it, if columns do.
    fn keys(&self) -> Option<Vec<ColumnKey>> {
        match (&self.wanted, &self.about) {
            (WantedField::Attr(None) | WantedField::Builtin(Builtin::Scope), _) => Some(Vec::new()),
            (WantedField::Parent, _) => Some(vec![GROUP]),
            (_, Some(about)) => fields_of(about),
            (_, None) => None,
        }
    }

    /// Where values of a kind go.
    fn part(&mut self, kind: ValueKind) -> (&mut Vec<u32>, &mut Vec<u8>) {
        let known = self.fixed.iter().position(|(known, ..)| *known == kind);
        let at = known.unwrap_or(self.fixed.len());
        if known.is_none() {
            self.fixed.push((kind, Vec::new(), Vec::new()));
        }
        let (_, rows, bytes) = &mut self.fixed[at];
        (rows, bytes)
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn push_text(&mut self, row: u32, text: &str) {
        let number = self.number(text);
        self.text_rows.push(row);
        self.codes.push(number);
    }

    /// Takes a cell of a kind of values; whether it can be one.
    fn push(&mut self, row: u32, kind: ValueKind, cell: &Cell<'_>) -> bool {
        if let (ValueKind::Text, Cell::Text(text)) = (kind, cell) {
            self.push_text(row, text);
            return true;
        }
        let (rows, bytes) = self.part(kind);
        let is_one = kind.push(cell, bytes);
        if is_one {
            rows.push(row);
        }
        is_one
    }

    /// The kind of a built-in field's cells.
    fn kind_of(&self, cell: &Cell<'_>) -> ValueKind {
        match cell {
            Cell::Text(_) => ValueKind::Text,
            Cell::Time(_) => ValueKind::Nanoseconds,
            Cell::Big(_) => ValueKind::Unsigned64,
            _ if self.wanted == WantedField::Parent => ValueKind::Unsigned64,
            _ => ValueKind::Int64,
        }
    }

    /// Takes what rows have of an attribute whose values are of one kind.
    fn take(&mut self, kind: ValueKind, field: &FieldCells<'_>, rows: &[RowAt]) {
        let has = |at: usize| field.sure.as_ref().is_none_or(|sure| sure.contains(at));
        let there = rows.iter().filter(|row| has(row.at));
        match &field.cells {
            RowCells::Numbers(Numbers::Floats(items)) if kind == ValueKind::Double => {
                let (places, bytes) = self.part(kind);
                for row in there {
                    places.push(row.place as u32);
                    bytes.extend_from_slice(&items[row.at].to_le_bytes());
                }
            }
            RowCells::Numbers(Numbers::Ints(items)) if kind == ValueKind::Int64 => {
                let (places, bytes) = self.part(kind);
                for row in there {
                    places.push(row.place as u32);
                    bytes.extend_from_slice(&items[row.at].to_le_bytes());
                }
            }
            RowCells::Coded(cells, codes) if kind == ValueKind::Text => {
                let mut numbers = vec![NO_CELL; cells.len()];
                for row in there {
                    let code = codes[row.at];
                    let Some(Cell::Text(text)) = cells.get(code as usize) else { continue };
                    if numbers[code as usize] == NO_CELL {
                        numbers[code as usize] = self.number(text);
                    }
                    self.text_rows.push(row.place as u32);
                    self.codes.push(numbers[code as usize]);
                }
            }
            _ => {
                for row in there {
                    if let Some(Some(cell)) = field.slot(row.at) {
                        self.push(row.place as u32, kind, &cell);
                    }
                }
            }
        }
    }

    /// Takes what rows have, by the columns that say it.
    fn take_rows(
        &mut self,
        judge: &mut Judge<'_>,
        fields: &[FieldCells<'_>],
        rows: &[RowAt],
    ) -> Result<()> {
        match (&self.wanted, self.about.clone()) {
            (WantedField::Attr(_), _) => {
                if let Some((field, kind)) = fields.first().and_then(|f| Some((f, f.kind?))) {
                    self.take(kind, field, rows);
                }
            }
            (WantedField::Builtin(Builtin::Scope), _) => {
                let scope = judge.groups.scope().as_str().to_owned();
                for row in rows {
                    self.push_text(row.place as u32, &scope);
                }
            }
            (WantedField::Parent | WantedField::Builtin(Builtin::Owner), _) | (_, None) => {
                for row in rows {
                    if let Some(Some(cell)) = fields[0].slot(row.at) {
                        let kind = self.kind_of(&cell);
                        self.push(row.place as u32, kind, &cell);
                    }
                }
            }
            (_, Some(about)) => {
                for row in rows {
                    if let Some(Some(cell)) = row_cell(judge, &about, fields, row.at)? {
                        let kind = self.kind_of(&cell);
                        self.push(row.place as u32, kind, &cell);
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Vec<ColumnPart> {
        let mut parts = Vec::new();
        for (kind, rows, bytes) in self.fixed {
            if !rows.is_empty() {
                parts.push(ColumnPart { rows, values: PartValues::Fixed(kind, bytes) });
            }
        }
        if !self.text_rows.is_empty() {
            let values = PartValues::Texts(self.texts, self.codes);
            parts.push(ColumnPart { rows: self.text_rows, values });
        }
        if !self.value_rows.is_empty() {
            let values = PartValues::Values(self.values);
            parts.push(ColumnPart { rows: self.value_rows, values });
        }
        parts
    }
}

/// Columns on their way.
struct Projector {
    columns: Vec<ProjectedColumn>,
    gone: Vec<u32>,
}

/// Whether columns do not say what a row has of an attribute, as a value.
fn is_open(field: &FieldCells<'_>, at: usize) -> bool {
    if field.unsure.as_ref().is_some_and(|unsure| unsure.contains(at)) {
        return true;
    }
    if field.sure.as_ref().is_some_and(|sure| !sure.contains(at)) {
        return false;
    }
    match (&field.cells, field.kind) {
        (RowCells::Nothing, _) => false,
        (_, None) => true,
        // There, and equal to nothing, it may have been any of several.
        (RowCells::Loose(cells), _) => matches!(cells[at], Cell::Other),
        (RowCells::Coded(cells, codes), _) => match codes[at] {
            NO_CELL => false,
            UNSURE_CELL => true,
            code => matches!(cells[code as usize], Cell::Other),
        },
        (RowCells::Numbers(_), _) => false,
    }
}

impl Told for Projector {
    fn rows(
        &mut self,
        judge: &mut Judge<'_>,
        rows: &[RowAt],
        fields: &[FieldCells<'_>],
        left: &mut Vec<usize>,
    ) -> Result<()> {
        let mut at = 0;
        let mut spans = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let count = column.keys().map_or(0, |keys| keys.len());
            spans.push(at..at + count);
            at += count;
        }
        let attrs = self.columns.iter().zip(&spans);
        let attrs: Vec<_> = attrs
            .filter(|(column, span)| {
                matches!(column.wanted, WantedField::Attr(_)) && !span.is_empty()
            })
            .map(|(_, span)| &fields[span.start])
            .collect();
        let sure = |field: &&FieldCells<'_>| {
            field.unsure.is_none()
                && field.kind.is_some()
                && matches!(field.cells, RowCells::Numbers(_))
        };
        let mut kept = Vec::new();
        let rows = if attrs.iter().all(sure) {
            rows
        } else {
            for row in rows {
                if attrs.iter().any(|field| is_open(field, row.at)) {
                    left.push(row.place);
                } else {
                    kept.push(*row);
                }
            }
            &kept
        };
        for (column, span) in self.columns.iter_mut().zip(spans) {
            column.take_rows(judge, &fields[span], rows)?;
        }
        Ok(())
    }

    fn record(&mut self, judge: &mut Judge<'_>, place: usize, record: &Record<'_>) -> Result<()> {
        let row = place as u32;
        for column in &mut self.columns {
            let cell = match (&column.wanted, &column.about) {
                (WantedField::Attr(_), _) => None,
                (WantedField::Parent, _) => Some(Cell::Int(record.parent as i64)),
                (WantedField::Builtin(Builtin::Owner), _) => {
                    Some(Cell::Int(i64::from(record.owner)))
                }
                (_, Some(about)) => judge.order_cell(about, record)?,
                (_, None) => None,
            };
            if let Some(cell) = cell {
                let kind = column.kind_of(&cell);
                column.push(row, kind, &cell);
            }
        }
        for entry in attrs::entries(record.attrs) {
            let entry = entry?;
            let wanted = WantedField::Attr(Some(entry.key));
            for column in self.columns.iter_mut().filter(|column| column.wanted == wanted) {
                match ValueKind::of_entry(&entry) {
                    Some(ValueKind::Text) => {
                        if let Ok(text) = std::str::from_utf8(entry.data()) {
                            column.push_text(row, text);
                        } else {
                            column.value_rows.push(row);
                            column.values.push(entry.decode()?);
                        }
                    }
                    Some(kind) => {
                        let (rows, bytes) = column.part(kind);
                        rows.push(row);
                        bytes.extend_from_slice(entry.data());
                    }
                    None => {
                        column.value_rows.push(row);
                        column.values.push(entry.decode()?);
                    }
                }
            }
        }
        Ok(())
    }

    fn gone(&mut self, place: usize) {
        self.gone.push(place as u32);
    }
}

impl Search<'_> {
    /// What these objects, ascending, have of some fields; a key that nobody has ever used has no
    /// number.
    pub fn project(
        &mut self,
        oids: &[Oid],
        wanted: &[WantedField],
        key_id: &mut dyn FnMut(&str) -> Result<Option<KeyId>>,
    ) -> Result<Projection> {
        let mut columns = Vec::with_capacity(wanted.len());
        for wanted in wanted {
            columns.push(ProjectedColumn::new(match wanted {
                WantedField::Attr(key) => WantedField::Attr(key_id(key)?),
                WantedField::Builtin(builtin) => WantedField::Builtin(*builtin),
                WantedField::Parent => WantedField::Parent,
            }));
        }
        let keys: Option<Vec<Vec<ColumnKey>>> = columns.iter().map(ProjectedColumn::keys).collect();
        let keys = keys.map(|keys| keys.concat()).unwrap_or_default();
        let mut projector = Projector { columns, gone: Vec::new() };
        self.tell(oids, &keys, &mut projector)?;
        let columns = projector.columns.into_iter().map(ProjectedColumn::finish).collect();
        Ok(Projection { columns, gone: projector.gone })
    }
}

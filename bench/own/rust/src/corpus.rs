//! A corpus as `bench/evaluation/corpus.py` writes it, which has its bytes.

use std::path::Path;

use crate::Result;

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Int(i64),
    Float(f64),
    Text(String),
}

/// One key: its distinct values, and for each object the number of its own.
pub struct Column {
    pub name: String,
    pub values: Vec<Item>,
    codes: Vec<u32>,
}

impl Column {
    /// An object's value.
    pub fn of(&self, place: usize) -> Option<&Item> {
        self.values.get(self.codes[place] as usize)
    }
}

/// Granules, names, and for each object where it is and what is said of it.
pub struct Corpus {
    pub granules: Vec<String>,
    names: Vec<String>,
    granule_of: Vec<u32>,
    name_of: Vec<u32>,
    pub columns: Vec<Column>,
}

impl Corpus {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path)?;
        let mut rest = Rest(&bytes);
        let [granules, names, objects, columns] = [(); 4].map(|()| rest.number());
        let (granules, names) = (granules? as usize, names? as usize);
        let (objects, columns) = (objects? as usize, columns?);
        let granules = rest.texts(granules)?;
        let names = rest.texts(names)?;
        let granule_of = rest.numbers(objects)?;
        let name_of = rest.numbers(objects)?;
        let columns = (0..columns).map(|_| rest.column(objects)).collect::<Result<_>>()?;
        Ok(Corpus { granules, names, granule_of, name_of, columns })
    }

    pub fn len(&self) -> usize {
        self.granule_of.len()
    }

    pub fn granule(&self, place: usize) -> &str {
        &self.granules[self.granule_of[place] as usize]
    }

    /// An object's name; a path if its granule has groups.
    pub fn name(&self, place: usize) -> &str {
        &self.names[self.name_of[place] as usize]
    }

    pub fn path(&self, place: usize) -> String {
        format!("{}/{}", self.granule(place), self.name(place))
    }

    /// An object's attributes.
    pub fn attributes(&self, place: usize) -> impl Iterator<Item = (&str, &Item)> {
        self.columns.iter().filter_map(move |c| c.of(place).map(|item| (c.name.as_str(), item)))
    }
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("the corpus is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32> {
        Ok(self.numbers(1)?[0])
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u32>> {
        let (fours, _) = self.take(4 * count)?.as_chunks();
        Ok(fours.iter().map(|four| u32::from_le_bytes(*four)).collect())
    }

    fn text(&mut self) -> Result<String> {
        let count = self.number()? as usize;
        Ok(String::from_utf8(self.take(count)?.to_vec())?)
    }

    fn texts(&mut self, count: usize) -> Result<Vec<String>> {
        (0..count).map(|_| self.text()).collect()
    }

    fn column(&mut self, objects: usize) -> Result<Column> {
        let name = self.text()?;
        let kind = self.take(1)?[0];
        let count = self.number()? as usize;
        let values = if kind == 2 {
            self.texts(count)?.into_iter().map(Item::Text).collect()
        } else {
            let (eights, _) = self.take(8 * count)?.as_chunks();
            let item = |eight: &[u8; 8]| match kind {
                0 => Item::Int(i64::from_le_bytes(*eight)),
                _ => Item::Float(f64::from_le_bytes(*eight)),
            };
            eights.iter().map(item).collect()
        };
        Ok(Column { name, values, codes: self.numbers(objects)? })
    }
}

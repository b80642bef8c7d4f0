//! Settings of the index: how what is stored below a group is indexed.

use std::ffi::{c_char, c_int};

use engram::query::ast::Literal;
use engram::{IndexSettings as Engine, Policy, Result};

use crate::error::{Status, guard};
use crate::group::Group;
use crate::options::indexing_of;
use crate::raw::{self, argument};

/// Settings of the index. What is not set is up to the group above.
#[derive(Default)]
pub struct IndexSettings {
    engine: Engine,
}

/// Gives new settings, of which nothing is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_new(settings: *mut *mut IndexSettings) -> Status {
    guard(|| {
        raw::out("settings", settings)?.set(raw::give(IndexSettings::default()));
        Ok(())
    })
}

fn set(settings: *mut IndexSettings, change: impl FnOnce(&mut Engine) -> Result<()>) -> Status {
    guard(|| {
        let own = &mut raw::of_mut("settings", settings)?.engine;
        let mut changed = own.clone();
        change(&mut changed)?;
        changed.check()?;
        *own = changed;
        Ok(())
    })
}

/// Sets when attributes are indexed: one of `ENGRAM_INDEXING_...`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_indexing(
    settings: *mut IndexSettings,
    indexing: c_int,
) -> Status {
    set(settings, |own| {
        own.mode = indexing_of(indexing)?;
        Ok(())
    })
}

/// Sets whether groups of attributes may change: split where they are large, and merge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_dynamic(
    settings: *mut IndexSettings,
    on: bool,
) -> Status {
    set(settings, |own| {
        own.policy = Some(if on { Policy::Dynamic } else { Policy::Fixed });
        Ok(())
    })
}

/// Sets a number by its name: `attributes_per_group` (0 for all in one), `split_threshold`,
/// `segment_rows`, `tail_rows`, `merge_sf`, `merge_overlap` or `queue_max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_number(
    settings: *mut IndexSettings,
    name: *const c_char,
    value: u32,
) -> Status {
    set(settings, |own| {
        let place = match raw::text("name", name)? {
            "attributes_per_group" => &mut own.attributes_per_group,
            "split_threshold" => &mut own.split_threshold,
            "segment_rows" => &mut own.segment_rows,
            "tail_rows" => &mut own.tail_rows,
            "merge_sf" => &mut own.merge_sf,
            "merge_overlap" => &mut own.merge_overlap,
            "queue_max" => &mut own.queue_max,
            other => {
                return Err(argument(format!(
                    "{other:?} is no number of the index: there are attributes_per_group \
                     split_threshold segment_rows tail_rows merge_sf merge_overlap queue_max"
                )));
            }
        };
        *place = Some(value);
        Ok(())
    })
}

/// Splits the index by an attribute: objects in which it is below a number, and the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_split_on(
    settings: *mut IndexSettings,
    key: *const c_char,
    value: f64,
) -> Status {
    set(settings, |own| {
        if value.is_nan() {
            return Err(argument("value is NaN, which nothing is below: give a number"));
        }
        own.split_on = Some((raw::text("key", key)?.to_owned(), Literal::Float(value)));
        Ok(())
    })
}

/// Splits the index by an attribute: objects in which it is below a text, or before the time that
/// the text names, and the others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_split_on_text(
    settings: *mut IndexSettings,
    key: *const c_char,
    text: *const c_char,
) -> Status {
    set(settings, |own| {
        let text = raw::text("text", text)?.to_owned();
        own.split_on = Some((raw::text("key", key)?.to_owned(), Literal::Text(text)));
        Ok(())
    })
}

/// Sets how what is stored below a group from now on is indexed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_group_set_index(
    group: *const Group,
    settings: *const IndexSettings,
) -> Status {
    guard(|| {
        let (group, settings) = (raw::of("group", group)?, raw::of("settings", settings)?);
        group.namespace.set_index_settings(group.gid, &settings.engine)
    })
}

/// Frees settings. NULL is allowed, and does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engram_index_settings_free(settings: *mut IndexSettings) {
    drop(raw::take(settings));
}

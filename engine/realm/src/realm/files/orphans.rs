//! Files without a name, when nobody has them open any more (F2).

use crate::realm::core::Core;
use crate::realm::gate::Inside;
use crate::realm::space;
use engram_base::error::Result;
use engram_base::fail;
use engram_base::faults::step;
use engram_base::id::{Oid, id_of_key};
use engram_catalog::Table;
use engram_ops::links;

/// Removes the orphans that no process has open, nor can come to open.
pub(crate) fn sweep(core: &Core, inside: &Inside<'_>) -> Result<()> {
    if core.setup.immutable
        || inside.catalog().knows_empty(Table::Orphans)?
        || inside.read()?.entries(Table::Orphans)? == 0
    {
        return Ok(());
    }
    core.aside(inside, |rows| {
        // A process that lists one from now on sees this, and looks once more (F1).
        inside.catalog().growth().set_removing(rows.txn().id());
        let floor = space::floor(core, inside)?;
        let mut gone: Vec<Oid> = Vec::new();
        let mut cursor = rows.txn().seek(Table::Orphans, &[])?;
        while let Some((key, row)) = cursor.next()? {
            let (oid, since) = (id_of_key(key)?, links::split_orphan(row)?.0);
            if !floor.may_open(oid, since) {
                gone.push(oid);
            }
        }
        drop(cursor);
        gone.into_iter().try_for_each(|oid| links::remove_orphan(rows, oid))?;
        // Look-ups need not ask, if these were the last.
        rows.txn().is_empty(Table::Orphans).map(drop)
    })?;
    step!("orphans.swept");
    Ok(())
}

/// Removes every orphan; the caller has the realm alone.
pub fn sweep_all(core: &Core, inside: &Inside<'_>) -> Result<()> {
    sweep(core, inside)?;
    if inside.read()?.entries(Table::Orphans)? > 0 {
        fail!(Busy, "files without a name are open still: close them first");
    }
    Ok(())
}

/// The same when this process has closed a file; what fails is left for the next one.
pub(super) fn after_close(core: &Core) {
    if core.gate.is_up()
        && let Ok(inside) = core.enter()
    {
        let _ = sweep(core, &inside);
    }
}

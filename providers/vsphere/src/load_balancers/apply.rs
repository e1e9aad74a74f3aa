//! Applies steps, with one write each.
//!
//! IDs of new objects follow from their tags and the UID of the Service, so an object that exists already is the result of an earlier
//! attempt. NSX answers such a creation, and an update of an old revision, with a conflict: the object is read again, merged and
//! written once more.

use bowline_cloud::{Applied, Error, ErrorKind, Result};
use bowline_core::{Operation, Progress};
use serde_json::json;

use super::{Allocation, Change, State, Write};
use crate::nsx::{
    IN_USE, INVALID_PATH, Nsx, Realization, Record, SERVICES, Tags, VIRTUAL_SERVERS, is_stale, tag_list, with_advice,
};

const ALLOCATE: &str = "allocate address";

const FREE_IT: &str = "remove that reference; the address stays until then";
const WAIT: &str = "the deletion is retried, because NSX has not removed the last virtual server yet";

pub(super) async fn apply(nsx: &Nsx, change: &Change, polled: Option<&str>) -> Result<Applied<State>> {
    match change {
        Change::Allocate { allocation, tags } => return allocate(nsx, allocation, tags).await,
        Change::Release(allocation) => delete(nsx, "delete_ip_allocation", &allocation.segments()).await?,
        Change::Write(write) => write_object(nsx, write, polled).await?,
        Change::Delete(collection, id) => delete(nsx, collection.delete, &collection.one(id)).await?,
        Change::DeleteService { id, path, marks } => delete_service(nsx, id, path, marks).await?,
    }
    Ok(Applied::Done)
}

async fn delete(nsx: &Nsx, name: &'static str, path: &[&str]) -> Result<()> {
    match nsx.delete(name, path).await {
        Err(error) if error.code() == Some(IN_USE) => Err(with_advice(&error, FREE_IT)),
        deleted => deleted,
    }
}

async fn allocate(nsx: &Nsx, allocation: &Allocation, tags: &Tags) -> Result<Applied<State>> {
    let body = json!({"tags": tag_list(tags)});
    nsx.patch("patch_ip_allocation", &allocation.segments(), &body).await?;
    Ok(Applied::Started(allocation.operation()))
}

/// Polls an allocation; the ID of the operation is its policy path.
pub(super) async fn poll(nsx: &Nsx, operation: &Operation) -> Result<Progress<Option<String>>> {
    match nsx.realization(&operation.id).await? {
        Realization::Realized { address: Some(address) } => Ok(Progress::Done(Some(address))),
        Realization::Realized { address: None } | Realization::Pending => Ok(Progress::Running),
        Realization::Failed { message, is_exhausted } => Err(Realization::to_error(&message, is_exhausted, ALLOCATE)),
    }
}

// ---- objects

async fn write_object(nsx: &Nsx, write: &Write, polled: Option<&str>) -> Result<()> {
    let mut object = write.object.clone();
    if let Some(allocation) = &write.address_of {
        object.set_address(&address(nsx, allocation, polled).await?);
    }
    let path = object.collection.one(&object.id);
    let put = nsx.put(object.collection.put, &path, &object.merged(write.current.as_ref())).await;
    let Err(conflict) = put else { return Ok(()) };
    if !is_stale(&conflict) {
        return Err(without_lb_service(nsx, &object.merged(write.current.as_ref()), conflict).await);
    }
    // upstream: the stale revision is an error of the sync.
    let found = nsx.find(object.collection.get, &path).await.map_err(Error::not_executed)?;
    let Some(found) = found else { return Err(conflict) };
    if !found.has_tags(&object.marks) {
        return Err(taken(&found));
    }
    let merged = object.merged(Some(&found));
    if merged == found { Ok(()) } else { nsx.put(object.collection.put, &path, &merged).await }
}

/// Returns the error of a rejected write. If the LB service of a virtual server has been deleted since it was observed, by the deletion
/// of another Service, it is observed again.
async fn without_lb_service(nsx: &Nsx, record: &Record, rejected: Error) -> Error {
    let id = record.text("lb_service_path").rsplit('/').next().unwrap_or_default();
    if rejected.code() != Some(INVALID_PATH) || id.is_empty() {
        return rejected;
    }
    match nsx.find(SERVICES.get, &SERVICES.one(id)).await {
        Ok(None) => {
            let message = format!("the LB service {id} was deleted after it was observed: {}", rejected.message());
            Error::new(ErrorKind::Conflict, rejected.operation(), message).with_code(INVALID_PATH)
        }
        _ => rejected,
    }
}

/// Returns the allocated address: from the poll that ended right before this step, or from the realised state.
async fn address(nsx: &Nsx, allocation: &Allocation, polled: Option<&str>) -> Result<String> {
    if let Some(address) = polled {
        return Ok(address.to_owned());
    }
    match nsx.realization(&allocation.path()).await.map_err(Error::not_executed)? {
        Realization::Realized { address: Some(address) } => Ok(address),
        Realization::Realized { address: None } | Realization::Pending => {
            Err(Error::pending(allocation.operation(), ALLOCATE))
        }
        Realization::Failed { message, is_exhausted } => Err(Realization::to_error(&message, is_exhausted, ALLOCATE)),
    }
}

fn taken(found: &Record) -> Error {
    let message = format!(
        "the ID of {} ({}) belongs to another owner: {}; delete or rename that object in NSX, or give it the tags of this Service",
        found.name(),
        found.id(),
        found.tags(),
    );
    Error::new(ErrorKind::AlreadyExists, "write object", message)
}

// ---- LB service

/// Deletes the LB service, unless a virtual server of any owner uses it, or it is not that of this cluster any more.
async fn delete_service(nsx: &Nsx, id: &str, path: &str, marks: &Tags) -> Result<()> {
    if is_used(nsx, path, marks).await? {
        return Ok(());
    }
    let found = nsx.find(SERVICES.get, &SERVICES.one(id)).await.map_err(Error::not_executed)?;
    if !found.is_some_and(|found| found.has_tags(marks)) {
        return Ok(());
    }
    match nsx.delete(SERVICES.delete, &SERVICES.one(id)).await {
        // Another Service attached a virtual server in the meantime. Without one, NSX has not removed the last one yet.
        Err(error) if error.code() == Some(IN_USE) => {
            if is_used(nsx, path, marks).await? {
                Ok(())
            } else {
                Err(with_advice(&error, WAIT))
            }
        }
        deleted => deleted,
    }
}

/// Whether any virtual server uses the LB service, or has the marks of the cluster. Those that NSX is deleting do not count.
async fn is_used(nsx: &Nsx, path: &str, marks: &Tags) -> Result<bool> {
    let servers = nsx.list_all(&VIRTUAL_SERVERS).await.map_err(Error::not_executed)?;
    Ok(servers.objects.iter().any(|one| one.text("lb_service_path") == path || one.has_tags(marks)))
}

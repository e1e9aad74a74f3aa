//! JSON patch (RFC 6902), as lenient and as strict as kube-apiserver.
//!
//! Crates that implement the RFC exactly do not work here: `replace` of a missing key sets it, indexes may be negative, a
//! path does not need a leading slash, `add` does not need a value.

use serde_json::Value;

use super::patch_decode_error;
use crate::status::{ApiError, ApiResult};

/// Maximum number of operations in one patch.
const MAX_OPERATIONS: usize = 10_000;

/// Maximum total size of the values that the `copy` operations of one patch copy, as JSON.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations in order. The patch fails if an operation fails.
pub(super) fn apply(current: &Value, operations: &Value) -> ApiResult<Value> {
    let operations = validated_operations(operations)?;
    let mut doc = current.clone();
    let mut copied = 0;
    for operation in operations {
        run(&mut doc, operation, &mut copied).ok_or_else(ApiError::rejected_patch)?;
    }
    Ok(doc)
}

fn validated_operations(operations: &Value) -> ApiResult<&[Value]> {
    let operations = match operations {
        Value::Null => &[],
        Value::Array(operations) => operations.as_slice(),
        other => return Err(patch_decode_error(other, "value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        check_types(operation)?;
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(too_many(operations.len()));
    }
    Ok(operations)
}

fn check_types(operation: &Value) -> ApiResult<()> {
    let fields = match operation {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        other => return Err(patch_decode_error(other, "value of type handlers.jsonPatchOp")),
    };
    for name in ["op", "path", "from"] {
        if let Some(other) = fields.get(name).filter(|v| !v.is_string() && !v.is_null()) {
            return Err(patch_decode_error(other, &format!("struct field jsonPatchOp.{name} of type string")));
        }
    }
    Ok(())
}

fn too_many(count: usize) -> ApiError {
    let mut error = ApiError::too_large(MAX_OPERATIONS);
    error.message = format!(
        "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
    );
    error
}

/// Runs one operation. Returns `None` if it fails. `copied` is the total number of bytes copied so far.
fn run(doc: &mut Value, operation: &Value, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = operation.get("value");
    match text("op")? {
        "add" => add(doc, text("path")?, value.cloned().unwrap_or_default()),
        "remove" => remove(doc, text("path")?).map(|_| ()),
        "replace" => replace(doc, text("path")?, value),
        "move" => {
            let moved = remove(doc, text("from")?)?;
            add(doc, text("path")?, moved)
        }
        "copy" => {
            let source = lookup(doc, text("from")?)?.cloned();
            *copied += source.as_ref().map_or(0, |value| value.to_string().len());
            if *copied > MAX_COPIED_BYTES {
                return None;
            }
            add(doc, text("path")?, source.unwrap_or_default())
        }
        "test" => test(doc, text("path")?, value),
        _ => None,
    }
}

fn add(doc: &mut Value, path: &str, value: Value) -> Option<()> {
    let (container, key) = container_mut(doc, path)?;
    match container {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => items.insert(index(&key, items.len() + 1)?, value),
        _ => return None,
    }
    Some(())
}

fn remove(doc: &mut Value, path: &str) -> Option<Value> {
    let (container, key) = container_mut(doc, path)?;
    match container {
        Value::Object(fields) => fields.remove(&key),
        Value::Array(items) => index(&key, items.len()).map(|at| items.remove(at)),
        _ => None,
    }
}

fn replace(doc: &mut Value, path: &str, value: Option<&Value>) -> Option<()> {
    if path.is_empty() {
        *doc = value.filter(|v| v.is_object() || v.is_array())?.clone();
        return Some(());
    }
    let (container, key) = container_mut(doc, path)?;
    let value = value.cloned().unwrap_or_default();
    match container {
        // upstream: a missing key is set.
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            *items.get_mut(at)? = value;
        }
        _ => return None,
    }
    Some(())
}

/// Compares a value. A missing key equals null.
fn test(doc: &mut Value, path: &str, value: Option<&Value>) -> Option<()> {
    let expected = value.unwrap_or(&Value::Null);
    let actual = if path.is_empty() { &*doc } else { lookup(doc, path)?.unwrap_or(&Value::Null) };
    (actual == expected).then_some(())
}

/// Returns the value at a path: `None` if a parent is missing, `Some(None)` if only the last key is missing.
fn lookup<'d>(doc: &'d mut Value, path: &str) -> Option<Option<&'d Value>> {
    let (container, key) = container_mut(doc, path)?;
    match container {
        Value::Object(fields) => Some(fields.get(&key)),
        Value::Array(items) => index(&key, items.len()).map(|at| items.get(at)),
        _ => None,
    }
}

/// Returns the object or list that contains the last segment of a path, and that segment.
fn container_mut<'d>(doc: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    // upstream: everything before the first slash is ignored.
    let (parents, last) = path.split_once('/').map(|(_, rest)| rest.rsplit_once('/').unwrap_or(("", rest)))?;
    let has_parents = path.matches('/').count() > 1;
    let mut at = doc;
    for step in parents.split('/').filter(|_| has_parents) {
        at = match at {
            Value::Object(fields) => fields.get_mut(&unescape(step))?,
            Value::Array(items) => {
                let index = index(&unescape(step), items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
    }
    Some((at, unescape(last)))
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Parses an index into a list of this length. Negative indexes count from its end.
fn index(key: &str, len: usize) -> Option<usize> {
    let at: i64 = key.parse().ok()?;
    let at = if at < 0 { at.checked_add(i64::try_from(len).ok()?)? } else { at };
    usize::try_from(at).ok().filter(|at| *at < len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(operations: Value) -> Option<Value> {
        let doc = json!({"data": {"a": "1"}, "list": [1, 2, 3], "x/y~": 0});
        apply(&doc, &operations).ok()
    }

    fn one(op: &str, path: &str, value: Value) -> Option<Value> {
        patched(json!([{"op": op, "path": path, "value": value}]))
    }

    #[test]
    fn operations_change_objects_and_lists() {
        assert_eq!(one("add", "/data/b", json!("2")).unwrap()["data"], json!({"a": "1", "b": "2"}));
        assert_eq!(one("add", "/list/1", json!(9)).unwrap()["list"], json!([1, 9, 2, 3]));
        assert_eq!(one("add", "/list/-", json!(9)).unwrap()["list"], json!([1, 2, 3, 9]));
        assert_eq!(one("replace", "/list/0", json!(9)).unwrap()["list"], json!([9, 2, 3]));
        assert_eq!(one("remove", "/list/2", json!(null)).unwrap()["list"], json!([1, 2]));
        assert_eq!(one("replace", "/x~1y~0", json!(1)).unwrap()["x/y~"], 1);
        let moved = patched(json!([{"op": "move", "from": "/data/a", "path": "/b"}])).unwrap();
        assert_eq!((&moved["data"], &moved["b"]), (&json!({}), &json!("1")));
        let copied = patched(json!([{"op": "copy", "from": "/list", "path": "/data/l"}])).unwrap();
        assert_eq!(copied["data"]["l"], json!([1, 2, 3]));
    }

    #[test]
    fn lenient_operations_match_upstream() {
        assert_eq!(one("replace", "/data/zz", json!("9")).unwrap()["data"]["zz"], "9");
        assert_eq!(one("add", "/list/-1", json!(9)).unwrap()["list"], json!([1, 2, 3, 9]));
        assert_eq!(one("remove", "/list/-1", json!(null)).unwrap()["list"], json!([1, 2]));
        assert_eq!(one("add", "data/a", json!("1")).unwrap()["a"], "1");
        assert!(one("test", "/data/zz", json!(null)).is_some());
        assert_eq!(patched(json!([{"op": "add", "path": "/n"}])).unwrap()["n"], Value::Null);
        assert!(patched(Value::Null).is_some());
        assert_eq!(one("replace", "", json!({})).unwrap(), json!({}));
    }

    #[test]
    fn operations_that_do_not_apply_are_rejected() {
        let cases = [
            json!([{"op": "frob", "path": "/data/a"}]),
            json!([{"path": "/data/a"}]),
            json!([null]),
            json!([{"op": "add", "path": "/nope/zz", "value": 1}]),
            json!([{"op": "add", "path": "nothing", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "add", "path": "/list/5", "value": 1}]),
            json!([{"op": "add", "path": "/data/a/b", "value": 1}]),
            json!([{"op": "remove", "path": "/data/zz"}]),
            json!([{"op": "remove", "path": "/list/9"}]),
            json!([{"op": "remove", "path": "/list/-"}]),
            json!([{"op": "replace", "path": "/list/3", "value": 1}]),
            json!([{"op": "replace", "path": "", "value": 1}]),
            json!([{"op": "test", "path": "/data/a", "value": "9"}]),
            json!([{"op": "test", "path": "/nope/a", "value": null}]),
            json!([{"op": "move", "from": "/data", "path": "/data/b"}]),
        ];
        for case in cases {
            assert_eq!(
                apply(&json!({"data": {"a": "1"}, "list": [1, 2, 3]}), &case),
                Err(ApiError::rejected_patch()),
                "{case}"
            );
        }
    }

    #[test]
    fn total_copy_size_is_limited() {
        let doubling = |times: u32| -> Value {
            (0..times).map(|i| json!({"op": "copy", "from": "/data", "path": format!("/data/x{i}")})).collect()
        };
        assert!(patched(doubling(10)).is_some());
        assert!(patched(doubling(40)).is_none());
    }

    #[test]
    fn invalid_operations_are_a_bad_request() {
        let message = |operations: Value| apply(&json!({}), &operations).unwrap_err().message;
        let prefix = "error decoding patch: json: cannot unmarshal";
        assert_eq!(
            message(json!({"op": "add"})),
            format!("{prefix} object into Go value of type []handlers.jsonPatchOp")
        );
        assert_eq!(message(json!(["add"])), format!("{prefix} string into Go value of type handlers.jsonPatchOp"));
        assert_eq!(
            message(json!([{"op": "add", "path": 5}])),
            format!("{prefix} number into Go struct field jsonPatchOp.path of type string")
        );
        let many = Value::Array(vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1]);
        assert!(message(many).ends_with("The allowed maximum operations in a JSON patch is 10000, got 10001"));
    }
}

//! Requests of the query protocol: an action with flat parameters.
//!
//! EC2 numbers the items of a list (`InstanceId.1`), the load balancer APIs write `member` before the number (`Names.member.1`).

use std::collections::BTreeMap;

use bowline_cloud::calls::Effect;

/// A request: the action, its effect and its parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(super) action: &'static str,
    pub(super) effect: Effect,
    pub(super) parameters: Vec<(String, String)>,
    filters: usize,
}

/// A filter of a `Describe…` action of EC2: the resource has one of these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    name: String,
    values: Vec<String>,
}

impl Filter {
    /// Creates a filter by name, such as `vpc-id` or `tag:Name`.
    pub(crate) fn new<T: AsRef<str>>(name: impl Into<String>, values: impl IntoIterator<Item = T>) -> Filter {
        Filter { name: name.into(), values: values.into_iter().map(|value| value.as_ref().to_owned()).collect() }
    }
}

impl Query {
    /// Creates a request that changes nothing.
    pub(crate) fn read(action: &'static str) -> Query {
        Query { action, effect: Effect::Read, parameters: Vec::new(), filters: 0 }
    }

    /// Creates a request that may be repeated: AWS rejects a duplicate, or the result is the same.
    pub(crate) fn write(action: &'static str) -> Query {
        Query { effect: Effect::IdempotentWrite, ..Query::read(action) }
    }

    /// Creates a request for a new resource. It is not repeated if its outcome is unknown.
    pub(crate) fn create(action: &'static str) -> Query {
        Query { effect: Effect::Write, ..Query::read(action) }
    }

    /// Adds a parameter.
    pub(crate) fn with(mut self, name: impl Into<String>, value: impl ToString) -> Query {
        self.parameters.push((name.into(), value.to_string()));
        self
    }

    /// Adds a parameter if there is a value.
    pub(crate) fn with_some(self, name: impl Into<String>, value: Option<impl ToString>) -> Query {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a list with an item's fields added by `add`, which gets the prefix of the item: `IpPermissions.1`.
    pub(crate) fn with_each<T>(
        self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        add: impl Fn(Query, &str, T) -> Query,
    ) -> Query {
        let numbered = items.into_iter().enumerate();
        numbered.fold(self, |query, (at, item)| add(query, &format!("{name}.{}", at + 1), item))
    }

    /// Adds a list of EC2: `InstanceId.1`.
    pub(crate) fn with_list<T: ToString>(self, name: &str, values: impl IntoIterator<Item = T>) -> Query {
        self.with_each(name, values, |query, item, value| query.with(item, value))
    }

    /// Adds a list of the load balancer APIs: `Names.member.1`.
    pub(crate) fn with_members<T: ToString>(self, name: &str, values: impl IntoIterator<Item = T>) -> Query {
        self.with_list(&format!("{name}.member"), values)
    }

    /// Adds a list of keys with their values, such as tags: `Tags.member.1.Key`, `Tags.member.1.Value`.
    pub(crate) fn with_pairs(self, name: &str, pairs: &BTreeMap<String, String>) -> Query {
        self.with_each(name, pairs, |query, item, (key, value)| {
            query.with(format!("{item}.Key"), key).with(format!("{item}.Value"), value)
        })
    }

    /// Adds filters of EC2.
    pub(crate) fn with_filters<'a>(self, filters: impl IntoIterator<Item = &'a Filter>) -> Query {
        filters.into_iter().fold(self, |mut query, filter| {
            query.filters += 1;
            let name = format!("Filter.{}", query.filters);
            query.with(format!("{name}.Name"), &filter.name).with_list(&format!("{name}.Value"), &filter.values)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(query: &Query) -> Vec<String> {
        query.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn lists_and_filters_are_numbered_from_one() {
        let filters = [Filter::new("vpc-id", ["v"]), Filter::new("tag:a", ["1", "2"])];
        let query = Query::read("Describe").with_list("Id", ["a", "b"]).with_members("Names", ["n"]);
        let query = query.with_filters(&filters).with_some("Token", None::<&str>).with("Max", 5);
        let expected = [
            "Id.1=a",
            "Id.2=b",
            "Names.member.1=n",
            "Filter.1.Name=vpc-id",
            "Filter.1.Value.1=v",
            "Filter.2.Name=tag:a",
            "Filter.2.Value.1=1",
            "Filter.2.Value.2=2",
            "Max=5",
        ];
        assert_eq!(shown(&query), expected);
    }

    #[test]
    fn items_with_fields_have_a_prefix() {
        let tags = [("a", "1"), ("b", "")];
        let query = Query::create("Create").with_each("Tag", tags, |query, tag, (key, value)| {
            query.with(format!("{tag}.Key"), key).with(format!("{tag}.Value"), value)
        });
        assert_eq!(shown(&query), ["Tag.1.Key=a", "Tag.1.Value=1", "Tag.2.Key=b", "Tag.2.Value="]);
    }
}

//! Listeners: one for each port.

use bowline_core::{FieldChange, FieldChanges, Step, Verb};

use super::mappings::{Mapping, TLS, Tls};
use super::{Change, Ref, step};
use crate::api::Tags;
use crate::api::elbv2::{Listener, ListenerSettings};

/// Subject of steps.
const SUBJECT: &str = "listener";

/// Settings of a listener whose target group an earlier step may create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewListener {
    /// Settings without the ARN of the target group.
    pub(crate) settings: ListenerSettings,
    pub(crate) group: Ref,
}

/// Returns the desired listener of a port.
pub(super) fn desired(mapping: &Mapping, tls: &Tls<'_>, group: Ref) -> NewListener {
    let is_tls = mapping.protocol == TLS;
    let settings = ListenerSettings {
        port: mapping.port,
        protocol: mapping.protocol.to_owned(),
        target_group_arn: String::new(),
        certificate: tls.certificate.filter(|_| is_tls).map(str::to_owned),
        ssl_policy: tls.policy.filter(|_| is_tls).map(str::to_owned),
    };
    NewListener { settings, group }
}

/// Returns the listener of a port: the one with its protocol, or else any. AWS can change the protocol of a listener.
pub(super) fn of_port<'a>(listeners: &'a [Listener], mapping: &Mapping) -> Option<&'a Listener> {
    let mut on_port = listeners.iter().filter(|listener| listener.port == mapping.port);
    on_port.clone().find(|listener| listener.protocol == mapping.protocol).or_else(|| on_port.next())
}

/// Returns the ARN of the target group of a listener; empty if it has several.
pub(super) fn target_group(listener: &Listener) -> &str {
    listener.default_actions.first().map_or("", |action| &action.target_group_arn)
}

/// Returns the fields in which a listener differs. Without a requested policy, any policy is right: AWS reports its default.
fn differences(observed: &Listener, new: &NewListener) -> Vec<FieldChange> {
    let mut fields = FieldChanges::default();
    let certificate = observed.certificates.first().map(|certificate| certificate.certificate_arn.as_str());
    let settings = &new.settings;
    let text = |text: Option<&str>| text.unwrap_or("none").to_owned();
    fields.compare("protocol", &observed.protocol, &settings.protocol);
    fields.compare("certificate", &text(certificate), &text(settings.certificate.as_deref()));
    if let Some(policy) = &settings.ssl_policy {
        fields.compare("TLS policy", &observed.ssl_policy, policy);
    }
    let group = target_group(observed).to_owned();
    match &new.group {
        Ref::Arn(arn) => fields.compare("target group", &group, arn),
        Ref::Name(name) => fields.compare("target group", &group, name),
    }
    fields.into_vec()
}

/// Step that changes a listener, if it differs.
pub(super) fn change(observed: &Listener, mapping: &Mapping, new: NewListener) -> Option<Step<super::super::Change>> {
    let fields = differences(observed, &new);
    let change = || Change::ModifyListener(observed.arn.clone(), new);
    (!fields.is_empty()).then(|| step(Verb::Update, SUBJECT, &mapping.name(), fields, change()))
}

/// Step that creates a listener.
pub(super) fn creation(
    load_balancer: &Ref,
    mapping: &Mapping,
    new: NewListener,
    tags: Tags,
) -> Step<super::super::Change> {
    let mut fields = FieldChanges::default();
    fields.set("target group", &new.group.text());
    if let Some(certificate) = &new.settings.certificate {
        fields.set("certificate", certificate);
    }
    let change = Change::CreateListener(load_balancer.clone(), new, tags);
    let mut create = step(Verb::Create, SUBJECT, &mapping.name(), fields.into_vec(), change);
    // AWS rejects a second listener on the same port.
    create.repeatable = true;
    create
}

/// Step that deletes a listener.
pub(super) fn deletion(listener: &Listener) -> Step<super::super::Change> {
    let name = format!("{} {}", listener.protocol, listener.port);
    step(Verb::Delete, SUBJECT, &name, Vec::new(), Change::DeleteListener(listener.arn.clone()))
}

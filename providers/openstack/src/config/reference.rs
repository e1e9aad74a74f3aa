//! The page of reference.

use super::declaration::table;

const HEAD: &str = "\
# OpenStack: cloud.conf

<!-- Made by `cargo xtask generate` from providers/openstack/src/config/declaration.rs; change that instead. -->

What `--cloud-config` names for `--cloud-provider=openstack`. It is the file of openstack-cloud-controller-manager, read by \
the same rules; [the guide](../guides/openstack.md) has one to start from.

- Lines are `[Section]`, `key = value`, or empty. `#` and `;` begin comments, also behind a value.
- Names have letters, digits and `-`, in any case. A `_` in one is an error.
- A value with `#`, `;`, `\"` or `\\` in it, or with blanks at either end, is put in quotes; inside them, write `\\\"` and `\\\\`. \
`password = ab#cd` is the password `ab`.
- A bool is `true`, `yes`, `on`, `1` or their opposites; the key alone is `true`.
- A duration has a unit: `5s`, `1m30s`, `1500ms`. `5` is an error.
- A key that is there twice has its last value; one that may be repeated has all of them, and the key alone forgets those \
above it.
- A section or key that nobody knows is ignored with a warning. Everything else that is wrong ends the program, with file, \
line and key.
";

const TAIL: &str = "
## clouds.yaml

With `use-clouds = true`, what is empty in `[Global]` is taken from the entry of clouds.yaml that `cloud` names, or \
`OS_CLOUD`, or the only one. `[Global]` wins, always: also where it says the same in another way, such as `tenant-name` beside \
`project_id`.

- The file is `clouds-file`, or else `OS_CLIENT_CONFIG_FILE`; if that does not exist, `clouds.yaml` or `clouds.yml` in the \
working directory, in `~/.config/openstack` or in `/etc/openstack`.
- `secure.yaml` in one of these three folders wins over it; `clouds-public.yaml` there is below it, where the entry has a \
`profile`. What is empty never wins.
- Taken are `auth_url`, `user_id`, `username`, `password`, `project_id`, `project_name`, `domain_id`, `domain_name`, \
`project_domain_id`, `project_domain_name`, `user_domain_id`, `user_domain_name`, `application_credential_id`, \
`application_credential_name`, `application_credential_secret`, `token`, `region_name`, `endpoint_type` or `interface`, \
`cacert`, `cert`, `key`, and `verify: false` if `tls-insecure` is not set.

## Environment

| variable | meaning |
|---|---|
| `OS_CCM_REGIONAL` | Exactly `true`: provider IDs of new Nodes have the region in them, `openstack://REGION/ID`. |
| `OCCM_WAIT_LB_ACTIVE_STEPS` | How long a balancer may be at work until that is an error, in looks of the Go manager, each pause 1.2 times the one before: 23, or 4.5 minutes, without it; 30 is 16 minutes. |
| `OS_CLIENT_CONFIG_FILE`, `OS_CLOUD` | Where clouds.yaml is, and which of its clouds is meant, if `[Global]` does not say. |
| `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY` | The way to the services. |
";

/// All keys, with types, defaults and meanings, in Markdown.
pub fn reference() -> String {
    [HEAD, &table().reference(), TAIL].concat()
}

//! Load balancers and routes of L4 agents: records, messages of their API, its client, and the provider side.

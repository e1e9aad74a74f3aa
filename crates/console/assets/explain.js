// What everything on the page is, for readers who are new to cloud controller managers. Each entry: a title, what it is, and `by`: the
// controller or component that makes it.

import { table } from "./format.js";

const CCM = "the cloud controller manager, this program";

export const INTRODUCTION = [
  "Kubernetes runs Pods on Nodes, but it knows nothing of the cloud below: which machine a Node is, or how traffic from outside reaches a Service.",
  "A cloud controller manager such as Bowline connects the two: it compares what the cluster asks for with what the cloud has, and changes the cloud until they agree.",
  "This page shows that work as it happens: start with “Needs attention”, follow the lines of the picture, and select the question mark beside anything that is new to you.",
];

/** Controllers by the name of their queue, without the cloud that follows it. Queues have the names of the Go manager's metrics. */
export const QUEUE_OWNERS = table({
  Nodes: "cloud-node-controller",
  Routes: "node-route-controller",
  service: "service-lb-controller",
  cidrallocator_node: "node-ipam-controller",
});

export const EXPLANATIONS = table({
  overview: {
    title: "The picture",
    text: "Each column is one kind of thing, from the cloud on the left to your Services on the right. A line means “belongs to” or “sends traffic to”. Point at an item, or move to it with the Tab key, to highlight everything on its path; select it for details. With many items, a column shows one entry per health and the items that need attention.",
    by: CCM,
  },
  attention: {
    title: "Needs attention",
    text: "Everything that is not as desired: errors first, then warnings, then work that takes longer than half a minute. Each entry says why, when the manager tries again, and what you can do. The manager retries by itself: you have to act only if the reason says so.",
    by: CCM,
  },
  clouds: {
    title: "Cloud",
    text: "An account or region of a cloud, or your own data centre, with an API. The manager reads machines from it, and creates load balancers and routes in it, as far as the provider supports them. One manager can serve several clouds.",
    by: "the provider that is configured with --cloud-provider",
  },
  machines: {
    title: "Machine",
    text: "A virtual or physical server in the cloud. A kubelet on it registers a Node. If the machine is stopped, the Node gets the taint node.cloudprovider.kubernetes.io/shutdown; if it is gone for good, the Node is deleted.",
    by: "the cloud; read by the cloud-node-controller and the cloud-node-lifecycle-controller",
  },
  nodes: {
    title: "Node",
    text: "A machine as Kubernetes sees it. A new Node has the taint node.cloudprovider.kubernetes.io/uninitialized, so that no Pod runs on it. The cloud-node-controller finds its machine, sets provider ID, addresses and labels for zone and type, and then removes the taint.",
    by: "the kubelet; initialised by the cloud-node-controller",
  },
  loadBalancers: {
    title: "Load balancer",
    text: "Accepts connections from outside at a stable address and forwards them to node ports of healthy Nodes. One exists for each Service of type LoadBalancer. You change it by changing the Service: changes made in the cloud itself are reverted.",
    by: "the service-lb-controller",
  },
  services: {
    title: "Service",
    text: "A name and a set of ports for a group of Pods. Type LoadBalancer asks for an address that is reachable from outside of the cluster. While it has none, kubectl shows its external IP as <pending>; the details of the Service show which step is waited for.",
    by: "you, with kubectl apply; its status is written by the service-lb-controller",
  },
  routes: {
    title: "Route",
    text: "An entry in the cloud's route table that sends the packets of one pod CIDR to the Node that runs these Pods. Clusters with an overlay network need none.",
    by: "the node-route-controller",
  },
  podCidrs: {
    title: "Pod CIDR",
    text: "The addresses that the Pods of one Node get. Each Node has a block of its own.",
    by: "the node-ipam-controller, or the cloud, or another controller of the cluster",
  },
  addresses: {
    title: "Addresses",
    text: "Where the Node is reachable: internal addresses inside of the cloud's network, external ones from outside, and host names. kubectl logs and exec, and load balancers, use them.",
    by: "the cloud-node-controller",
  },
  taints: {
    title: "Taints",
    text: "A taint keeps Pods off a Node. The ones of cloud providers are temporary: uninitialized until the Node's machine is found, shutdown while the machine is stopped. Others, such as not-ready, are set by Kubernetes itself.",
    by: "the kubelet, the cloud-node-controller, the cloud-node-lifecycle-controller, and others",
  },
  nodePath: {
    title: "From machine to working Node",
    text: "The steps that a new Node takes. The first one without a check mark is what is waited for.",
    by: "the controllers named in the steps",
  },
  servicePath: {
    title: "From kubectl apply to an address",
    text: "The steps that a Service of type LoadBalancer takes. The first one without a check mark is what is waited for.",
    by: "the service-lb-controller",
  },
  desired: {
    title: "Desired state",
    text: "What the Service's spec asks for. The manager never changes it; it changes the cloud until it fits.",
    by: "you, with kubectl apply",
  },
  observed: {
    title: "Observed state",
    text: "What the cloud had at the time of the last sync.",
    by: "the service-lb-controller, from the cloud's API",
  },
  plan: {
    title: "Last plan",
    text: "The difference between desired and observed state, as steps in order: create, update or delete a resource of the cloud. A sync that finds no difference has an empty plan and writes nothing. The command “bowline plan” prints plans without applying them.",
    by: "the service-lb-controller with the provider of the cloud",
  },
  condition: {
    title: "Condition",
    text: "The state of the load balancer as it is written into the status of the Service, for kubectl and other programs.",
    by: "the service-lb-controller",
  },
  targets: {
    title: "Targets",
    text: "The Nodes that the load balancer sends traffic to. Nodes that are not ready, are being deleted or are excluded by a label are no targets. Health is the result of the load balancer's own checks of the node ports; a draining target gets no new connections.",
    by: "the service-lb-controller; health by the load balancer",
  },
  work: {
    title: "Work queue entry",
    text: "Idle: nothing to do until something changes. Waiting: in the queue. In work: a worker compares and changes it now. Delayed: a timer puts it back into the queue, after a failure with a growing delay (back-off).",
    by: "the controller that owns the queue",
  },
  queues: {
    title: "Queues",
    text: "Each controller has a queue of names that may need work. A change in the cluster adds a name; workers take names and compare desired with observed state. A name is in the queue once at most, and never in work twice at the same time. A queue that only grows means that the cloud or the API server is slower than the changes.",
    by: "each controller",
  },
  backoffs: {
    title: "In work and back-offs",
    text: "Names that a worker syncs right now, and names whose last sync failed. After each failure in a row the delay doubles, up to a limit, so that a broken object costs little. A change of the object starts a sync at once.",
    by: "each controller",
  },
  held: {
    title: "Held deletions",
    text: "A Node whose machine seems to be gone is deleted. If too many Nodes seem to be gone at once, the cause is more likely a wrong credential or an outage of the cloud, so the brake holds these deletions until the cloud's answers are plausible again, or until you release them with the command.",
    by: "the cloud-node-lifecycle-controller",
  },
  calls: {
    title: "Cloud calls",
    text: "Requests to the cloud's API. Failed ones include throttled ones, which the cloud rejected because of its rate limit; they are retried later. Few calls are a sign of health: the manager batches and caches reads.",
    by: "the provider, on behalf of all controllers",
  },
  budget: {
    title: "Call budget and rate limit",
    text: "The rate limit is a maximum of this manager's own. The budget is the number of calls that the cloud accepts until the next reset, as far as the cloud reports it. When little remains, the manager slows down by itself. A pause is a time for which the cloud has requested no calls.",
    by: "the manager; the budget by the cloud",
  },
  leader: {
    title: "Leader and Lease",
    text: "Several managers may run, but only the one that holds the Lease changes anything: the leader. It renews the Lease every few seconds; if it fails to, it stops, and a standby takes over.",
    by: "leader election, with a Lease object in the cluster",
  },
  controllers: {
    title: "Controllers",
    text: "A controller is a loop: watch a kind of object, compare desired with observed state, act on the difference, and begin again. A cloud controller manager is a handful of them in one process.",
    by: CCM,
  },
  loops: {
    title: "Loops",
    text: "Work that is repeated after a fixed time instead of after a change: reading the state of machines, comparing route tables, updating targets when Nodes change.",
    by: CCM,
  },
  watches: {
    title: "Watches",
    text: "Open connections to the API server that report each change of a kind of object. Controllers start only when their watches are synced, that is, when the whole list has arrived.",
    by: CCM,
  },
  events: {
    title: "Events",
    text: "Short messages that the manager attaches to objects. kubectl describe shows them, too. Warnings say what failed and what to do.",
    by: "the controller in the last column",
  },
  traffic: {
    title: "Load balancer traffic",
    text: "New connections and bytes per second, from the load balancers' counters. It is known for load balancers of the playground and of L4 agents.",
    by: "the data plane of the load balancers",
  },
  tour: {
    title: "Tour",
    text: "A sequence of steps that shows what a cloud controller manager does: Nodes join, a Service gets an address, machines fail, the cloud misbehaves. Checks are ticked as the manager makes them true. The terminal that runs the playground leads through the steps.",
    by: "the playground",
  },
  faults: {
    title: "Faults",
    text: "Ways in which a real cloud misbehaves: slow or failing calls, throttling, wrong answers. Turn one on and watch how the manager copes; nothing outside of this playground is affected.",
    by: "the playground's cloud",
  },
  examples: {
    title: "Examples",
    text: "Objects to try things with, the same as “bowline playground example NAME | kubectl apply -f -” creates.",
    by: "the playground",
  },
  health: {
    title: "Health",
    text: "Five levels, each with a shape of its own: check mark in a circle: as desired. Dots in a circle: work is in progress. Question mark in a square: not known. Exclamation mark in a triangle: degraded or waiting for something. Cross in an octagon: failed; you have to act.",
    by: CCM,
  },
  "cloud-node-controller": {
    title: "cloud-node-controller",
    text: "Initialises new Nodes: finds the machine in the cloud, writes provider ID, addresses, zone, region and instance type, and removes the taint uninitialized. Later it keeps addresses and labels up to date.",
    by: CCM,
  },
  "cloud-node-lifecycle-controller": {
    title: "cloud-node-lifecycle-controller",
    text: "Watches Nodes that are not ready. Adds the taint shutdown if the machine is stopped, and deletes the Node if the machine no longer exists.",
    by: CCM,
  },
  "service-lb-controller": {
    title: "service-lb-controller",
    text: "Creates, updates and deletes a load balancer for each Service of type LoadBalancer, keeps its targets equal to the healthy Nodes, and writes its address into the status of the Service.",
    by: CCM,
  },
  "node-ipam-controller": {
    title: "node-ipam-controller",
    text: "Allocates a pod CIDR for each Node.",
    by: CCM,
  },
  "node-route-controller": {
    title: "node-route-controller",
    text: "Keeps one route per pod CIDR in the cloud's route table, and sets the condition NetworkUnavailable of each Node accordingly.",
    by: CCM,
  },
  "provider-loop-controller": {
    title: "provider-loop-controller",
    text: "Runs background work of the provider that depends on the whole cluster, such as tags and a firewall for all Nodes.",
    by: CCM,
  },
});

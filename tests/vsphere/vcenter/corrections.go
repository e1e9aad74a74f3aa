package main

import (
	"net"
	"regexp"
	"strings"
	"sync"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// correct replaces the search index and the property collector of the simulator. Both
// embed the original, so every other method is the simulator's.
func correct() {
	index := &searchIndex{}
	index.Self = simulator.Map.SearchIndex().Self
	simulator.Map.Put(index)

	content := simulator.Map.Get(types.ManagedObjectReference{Type: "ServiceInstance", Value: "ServiceInstance"}).(*simulator.ServiceInstance).Content
	collector := &propertyCollector{}
	collector.Self = content.PropertyCollector
	simulator.Map.Put(collector)
}

// datacenterOf returns the datacenter of an object.
func datacenterOf(e mo.Entity) *types.ManagedObjectReference {
	for steps := 0; e != nil && steps < 50; steps++ {
		ref := e.Reference()
		if ref.Type == "Datacenter" {
			return &ref
		}
		up := e.Entity().Parent
		if vm, ok := e.(*simulator.VirtualMachine); ok && up == nil {
			up = vm.ParentVApp
		}
		if up == nil {
			return nil
		}
		next, ok := simulator.Map.Get(*up).(mo.Entity)
		if !ok {
			return nil
		}
		e = next
	}
	return nil
}

// --- search ------------------------------------------------------------------

// searchIndex searches only in the requested datacenter, as vCenter does, ignores
// case, and finds every address of a VM.
type searchIndex struct {
	simulator.SearchIndex
}

// machines lists the VMs of one datacenter (nil: all) that match. The second result
// is false if the datacenter does not exist.
func machines(dc *types.ManagedObjectReference, match func(*simulator.VirtualMachine) bool) ([]types.ManagedObjectReference, bool) {
	if dc != nil && simulator.Map.Get(*dc) == nil {
		return nil, false
	}
	var found []types.ManagedObjectReference
	for _, e := range simulator.Map.All("VirtualMachine") {
		vm := e.(*simulator.VirtualMachine)
		if !match(vm) {
			continue
		}
		if dc != nil {
			if at := datacenterOf(vm); at == nil || *at != *dc {
				continue
			}
		}
		found = append(found, vm.Self)
	}
	return found, true
}

func absent(dc *types.ManagedObjectReference) *soap.Fault {
	return simulator.Fault("The object has already been deleted or has not been completely created",
		&types.ManagedObjectNotFound{Obj: *dc})
}

func first(refs []types.ManagedObjectReference) *types.ManagedObjectReference {
	if len(refs) == 0 {
		return nil
	}
	return &refs[0]
}

// FindAllByUuid is missing in the simulator.
func (s *searchIndex) FindAllByUuid(req *types.FindAllByUuid) soap.HasFault {
	body := &methods.FindAllByUuidBody{}
	if !req.VmSearch {
		body.Fault_ = simulator.Fault("", &types.NotSupported{})
		return body
	}
	found, ok := machines(req.Datacenter, func(vm *simulator.VirtualMachine) bool {
		if req.InstanceUuid != nil && *req.InstanceUuid {
			return strings.EqualFold(vm.Config.InstanceUuid, req.Uuid)
		}
		return strings.EqualFold(vm.Config.Uuid, req.Uuid)
	})
	if !ok {
		body.Fault_ = absent(req.Datacenter)
		return body
	}
	body.Res = &types.FindAllByUuidResponse{Returnval: found}
	return body
}

func (s *searchIndex) FindByUuid(req *types.FindByUuid) soap.HasFault {
	if !req.VmSearch {
		return s.SearchIndex.FindByUuid(req)
	}
	all := types.FindAllByUuid(*req)
	r := s.FindAllByUuid(&all).(*methods.FindAllByUuidBody)
	body := &methods.FindByUuidBody{Fault_: r.Fault_}
	if r.Res != nil {
		body.Res = &types.FindByUuidResponse{Returnval: first(r.Res.Returnval)}
	}
	return body
}

func (s *searchIndex) FindAllByDnsName(req *types.FindAllByDnsName) soap.HasFault {
	if !req.VmSearch {
		return s.SearchIndex.FindAllByDnsName(req)
	}
	body := &methods.FindAllByDnsNameBody{}
	found, ok := machines(req.Datacenter, func(vm *simulator.VirtualMachine) bool {
		return vm.Guest.HostName != "" && strings.EqualFold(vm.Guest.HostName, req.DnsName)
	})
	if !ok {
		body.Fault_ = absent(req.Datacenter)
		return body
	}
	body.Res = &types.FindAllByDnsNameResponse{Returnval: found}
	return body
}

func (s *searchIndex) FindByDnsName(req *types.FindByDnsName) soap.HasFault {
	all := types.FindAllByDnsName(*req)
	r := s.FindAllByDnsName(&all).(*methods.FindAllByDnsNameBody)
	body := &methods.FindByDnsNameBody{Fault_: r.Fault_}
	if r.Res != nil {
		body.Res = &types.FindByDnsNameResponse{Returnval: first(r.Res.Returnval)}
	}
	return body
}

func (s *searchIndex) FindAllByIp(req *types.FindAllByIp) soap.HasFault {
	if !req.VmSearch {
		return s.SearchIndex.FindAllByIp(req)
	}
	body := &methods.FindAllByIpBody{}
	wanted := net.ParseIP(req.Ip)
	found, ok := machines(req.Datacenter, func(vm *simulator.VirtualMachine) bool {
		for _, card := range vm.Guest.Net {
			for _, ip := range card.IpAddress {
				if wanted != nil && wanted.Equal(net.ParseIP(ip)) {
					return true
				}
			}
		}
		return false
	})
	if !ok {
		body.Fault_ = absent(req.Datacenter)
		return body
	}
	body.Res = &types.FindAllByIpResponse{Returnval: found}
	return body
}

func (s *searchIndex) FindByIp(req *types.FindByIp) soap.HasFault {
	all := types.FindAllByIp(*req)
	r := s.FindAllByIp(&all).(*methods.FindAllByIpBody)
	body := &methods.FindByIpBody{Fault_: r.Fault_}
	if r.Res != nil {
		body.Res = &types.FindByIpResponse{Returnval: first(r.Res.Returnval)}
	}
	return body
}

// --- properties --------------------------------------------------------------

// propertyCollector adds paging and keyed paths such as
// config.extraConfig["guestinfo.metadata"].
type propertyCollector struct {
	simulator.PropertyCollector
}

// remainder is the objects of the next pages.
type remainder struct {
	objects []types.ObjectContent
	limit   int32
}

// defaultPage is the number of objects on a page if the client names no limit.
const defaultPage = 100

var (
	restMutex sync.Mutex
	rests     = map[string]remainder{} // by token
	pageLimit int32                    // maximum number of objects on a page; 0: what the client asks for
	keyedPath = regexp.MustCompile(`^config\.extraConfig\["([^"]*)"\]$`)
)

// page returns the first page, and the token of the next one.
func page(objects []types.ObjectContent, limit int32) ([]types.ObjectContent, string) {
	restMutex.Lock()
	defer restMutex.Unlock()
	if limit <= 0 {
		limit = defaultPage
	}
	if pageLimit > 0 && pageLimit < limit {
		limit = pageLimit
	}
	if int32(len(objects)) <= limit {
		return objects, ""
	}
	token := uuid.New().String()
	rests[token] = remainder{objects[limit:], limit}
	return objects[:limit], token
}

func setPageLimit(limit int32) {
	restMutex.Lock()
	defer restMutex.Unlock()
	pageLimit = limit
}

func (pc *propertyCollector) RetrievePropertiesEx(ctx *simulator.Context, r *types.RetrievePropertiesEx) soap.HasFault {
	keys := plainPaths(r.SpecSet)
	res := pc.PropertyCollector.RetrievePropertiesEx(ctx, r)
	body, ok := res.(*methods.RetrievePropertiesExBody)
	if !ok || body.Res == nil || body.Res.Returnval == nil {
		return res
	}
	pickKeys(body.Res.Returnval.Objects, keys)
	body.Res.Returnval.Objects, body.Res.Returnval.Token = page(body.Res.Returnval.Objects, r.Options.MaxObjects)
	return body
}

// RetrieveProperties has no pages.
func (pc *propertyCollector) RetrieveProperties(ctx *simulator.Context, r *types.RetrieveProperties) soap.HasFault {
	keys := plainPaths(r.SpecSet)
	res := pc.PropertyCollector.RetrieveProperties(ctx, r)
	if body, ok := res.(*methods.RetrievePropertiesBody); ok && body.Res != nil {
		pickKeys(body.Res.Returnval, keys)
	}
	return res
}

func (pc *propertyCollector) ContinueRetrievePropertiesEx(ctx *simulator.Context, r *types.ContinueRetrievePropertiesEx) soap.HasFault {
	body := &methods.ContinueRetrievePropertiesExBody{}
	restMutex.Lock()
	left, ok := rests[r.Token]
	delete(rests, r.Token)
	restMutex.Unlock()
	if !ok {
		body.Fault_ = simulator.Fault("", &types.InvalidArgument{InvalidProperty: "token"})
		return body
	}
	objects, token := page(left.objects, left.limit)
	body.Res = &types.ContinueRetrievePropertiesExResponse{Returnval: types.RetrieveResult{Objects: objects, Token: token}}
	return body
}

func (pc *propertyCollector) CancelRetrievePropertiesEx(ctx *simulator.Context, r *types.CancelRetrievePropertiesEx) soap.HasFault {
	restMutex.Lock()
	delete(rests, r.Token)
	restMutex.Unlock()
	return &methods.CancelRetrievePropertiesExBody{Res: new(types.CancelRetrievePropertiesExResponse)}
}

// plainPaths replaces keyed paths by the path of the whole list, and returns their keys.
func plainPaths(specs []types.PropertyFilterSpec) map[string]bool {
	keys := map[string]bool{}
	for i := range specs {
		for j := range specs[i].PropSet {
			paths := specs[i].PropSet[j].PathSet
			whole := false
			kept := paths[:0:0]
			for _, p := range paths {
				if m := keyedPath.FindStringSubmatch(p); m != nil {
					keys[m[1]] = true
					whole = true
				} else {
					kept = append(kept, p)
				}
			}
			if whole {
				specs[i].PropSet[j].PathSet = append(kept, "config.extraConfig")
			}
		}
	}
	return keys
}

// pickKeys replaces the whole list by one property for each requested key.
func pickKeys(objects []types.ObjectContent, keys map[string]bool) {
	if len(keys) == 0 {
		return
	}
	for i := range objects {
		kept := objects[i].PropSet[:0:0]
		for _, p := range objects[i].PropSet {
			list, ok := p.Val.(*types.ArrayOfOptionValue)
			if !ok {
				if l, isValue := p.Val.(types.ArrayOfOptionValue); isValue {
					list, ok = &l, true
				}
			}
			if p.Name != "config.extraConfig" || !ok {
				kept = append(kept, p)
				continue
			}
			for _, o := range list.OptionValue {
				if v := o.GetOptionValue(); keys[v.Key] {
					kept = append(kept, types.DynamicProperty{Name: `config.extraConfig["` + v.Key + `"]`, Val: *v})
				}
			}
		}
		objects[i].PropSet = kept
	}
}

package router

// PositionHeaders has Route add the position headers. The end of the commit is
// known once the commit was read: see Place.
func (r *Router) PositionHeaders() { r.positions = true }

package files

// opCollect is answered with a tree behind the response; what it is of stands behind the request.
const opCollect = "collect"

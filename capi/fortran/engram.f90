! Engram for Fortran: arrays of all ranks in one pool, stored and loaded by parts.
!
!   use engram
!   type(engram_pool) :: pool
!   call engram_create(pool, "/dev/shm/run", 4_8 * 1024**3)   ! by one rank; others engram_open it
!   call engram_alloc(pool, "step-1/T", engram_real64, [nx, ny])
!   call engram_store(pool, "step-1/T", engram_real64, block, [x, y], [64_8, ny])
!   call engram_close(pool)
!
! Dimensions are Fortran's: the first one is contiguous, and places count from 1. C and Python see
! the same array with its dimensions in the opposite order. Parts that do not overlap may be stored
! by many ranks at once; nothing here communicates.
!
! Each procedure takes an optional `status`: 0 where all is well, and engram_message() says what was
! wrong. Without it, what fails ends the program with that message.
module engram
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    private

    public :: engram_pool, engram_create, engram_open, engram_close, engram_alloc, engram_store
    public :: engram_load, engram_dims, engram_message

    ! The types of items.
    integer(c_int), parameter, public :: engram_int8 = 2, engram_int16 = 3, engram_int32 = 4
    integer(c_int), parameter, public :: engram_int64 = 5, engram_real32 = 11, engram_real64 = 12
    integer(c_int), parameter, public :: engram_complex32 = 13, engram_complex64 = 14

    integer(c_int), parameter :: bad_argument = 11, read_write = 1, flush_once = 0

    ! An open pool.
    type :: engram_pool
        private
        type(c_ptr) :: handle = c_null_ptr
        type(c_ptr) :: root = c_null_ptr
    end type

    character(:), allocatable, save :: message
    !$omp threadprivate(message)

    interface
        function c_create(path, size, options, pool) bind(c, name="engram_pool_create")
            import
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int64_t), value :: size
            type(c_ptr), value :: options
            type(c_ptr), intent(inout) :: pool
            integer(c_int) :: c_create
        end function
        function c_open(path, mode, force, pool) bind(c, name="engram_pool_open")
            import
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int), value :: mode
            logical(c_bool), value :: force
            type(c_ptr), intent(inout) :: pool
            integer(c_int) :: c_open
        end function
        function c_close(pool) bind(c, name="engram_pool_close")
            import
            type(c_ptr), value :: pool
            integer(c_int) :: c_close
        end function
        function c_root(pool, name, root) bind(c, name="engram_namespace_open")
            import
            type(c_ptr), value :: pool, name
            type(c_ptr), intent(inout) :: root
            integer(c_int) :: c_root
        end function
        subroutine c_group_free(group) bind(c, name="engram_group_free")
            import
            type(c_ptr), value :: group
        end subroutine
        function c_options_new(options) bind(c, name="engram_options_new")
            import
            type(c_ptr), intent(inout) :: options
            integer(c_int) :: c_options_new
        end function
        function c_options_unset(options, on) bind(c, name="engram_options_unset")
            import
            type(c_ptr), value :: options
            logical(c_bool), value :: on
            integer(c_int) :: c_options_unset
        end function
        function c_options_chunks(options, ndim, chunks, codec) &
                bind(c, name="engram_options_chunks")
            import
            type(c_ptr), value :: options, chunks
            integer(c_size_t), value :: ndim
            character(kind=c_char), intent(in) :: codec(*)
            integer(c_int) :: c_options_chunks
        end function
        subroutine c_options_free(options) bind(c, name="engram_options_free")
            import
            type(c_ptr), value :: options
        end subroutine
        function c_pool_options_new(options) bind(c, name="engram_pool_options_new")
            import
            type(c_ptr), intent(inout) :: options
            integer(c_int) :: c_pool_options_new
        end function
        function c_pool_options_force(options, on) bind(c, name="engram_pool_options_force")
            import
            type(c_ptr), value :: options
            logical(c_bool), value :: on
            integer(c_int) :: c_pool_options_force
        end function
        subroutine c_pool_options_free(options) bind(c, name="engram_pool_options_free")
            import
            type(c_ptr), value :: options
        end subroutine
        function c_require(group, path, dtype, ndim, shape, options, object) &
                bind(c, name="engram_array_require")
            import
            type(c_ptr), value :: group, dtype, options, object
            character(kind=c_char), intent(in) :: path(*)
            integer(c_size_t), value :: ndim
            integer(c_int64_t), intent(in) :: shape(*)
            integer(c_int) :: c_require
        end function
        function c_object_open(group, path, object) bind(c, name="engram_object_open")
            import
            type(c_ptr), value :: group
            character(kind=c_char), intent(in) :: path(*)
            type(c_ptr), intent(inout) :: object
            integer(c_int) :: c_object_open
        end function
        subroutine c_object_free(object) bind(c, name="engram_object_free")
            import
            type(c_ptr), value :: object
        end subroutine
        function c_object_dtype(object) bind(c, name="engram_object_dtype")
            import
            type(c_ptr), value :: object
            type(c_ptr) :: c_object_dtype
        end function
        function c_object_ndim(object) bind(c, name="engram_object_ndim")
            import
            type(c_ptr), value :: object
            integer(c_size_t) :: c_object_ndim
        end function
        function c_object_shape(object) bind(c, name="engram_object_shape")
            import
            type(c_ptr), value :: object
            type(c_ptr) :: c_object_shape
        end function
        function c_dtype_scalar(scalar) bind(c, name="engram_dtype_scalar")
            import
            integer(c_int), value :: scalar
            type(c_ptr) :: c_dtype_scalar
        end function
        function c_dtype_equal(one, other) bind(c, name="engram_dtype_equal")
            import
            type(c_ptr), value :: one, other
            logical(c_bool) :: c_dtype_equal
        end function
        function c_dtype_itemsize(dtype) bind(c, name="engram_dtype_itemsize")
            import
            type(c_ptr), value :: dtype
            integer(c_size_t) :: c_dtype_itemsize
        end function
        function c_store(object, ndim, offsets, counts, data, nbytes, flush) &
                bind(c, name="engram_object_store")
            import
            type(c_ptr), value :: object, data
            integer(c_size_t), value :: ndim, nbytes
            integer(c_int64_t), intent(in) :: offsets(*), counts(*)
            integer(c_int), value :: flush
            integer(c_int) :: c_store
        end function
        function c_load(object, ndim, offsets, counts, data, nbytes) &
                bind(c, name="engram_object_load")
            import
            type(c_ptr), value :: object, data
            integer(c_size_t), value :: ndim, nbytes
            integer(c_int64_t), intent(in) :: offsets(*), counts(*)
            integer(c_int) :: c_load
        end function
        function c_last_error() bind(c, name="engram_last_error")
            import
            type(c_ptr) :: c_last_error
        end function
        function c_strlen(text) bind(c, name="strlen")
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: c_strlen
        end function
    end interface

contains

    ! Makes a pool of at most `size` bytes of values, and opens it; `force`, where its filesystem is
    ! not on Engram's list.
    subroutine engram_create(pool, path, size, status, force)
        type(engram_pool), intent(out) :: pool
        character(*), intent(in) :: path
        integer(c_int64_t), intent(in) :: size
        integer, intent(out), optional :: status
        logical, intent(in), optional :: force
        type(c_ptr) :: options
        integer(c_int) :: done
        options = c_null_ptr
        done = c_pool_options_new(options)
        if (done == 0) done = c_pool_options_force(options, given(force))
        if (done == 0) done = c_create(path // c_null_char, size, options, pool%handle)
        if (done == 0) done = c_root(pool%handle, c_null_ptr, pool%root)
        call told(done, "create " // path, status)
        call c_pool_options_free(options)
    end subroutine

    ! Opens a pool that is there.
    subroutine engram_open(pool, path, status, force)
        type(engram_pool), intent(out) :: pool
        character(*), intent(in) :: path
        integer, intent(out), optional :: status
        logical, intent(in), optional :: force
        integer(c_int) :: done
        done = c_open(path // c_null_char, read_write, given(force), pool%handle)
        if (done == 0) done = c_root(pool%handle, c_null_ptr, pool%root)
        call told(done, "open " // path, status)
    end subroutine

    ! Closes a pool. What is stored is there without it.
    subroutine engram_close(pool, status)
        type(engram_pool), intent(inout) :: pool
        integer, intent(out), optional :: status
        integer(c_int) :: done
        call c_group_free(pool%root)
        pool%root = c_null_ptr
        done = c_close(pool%handle)
        if (done == 0) pool%handle = c_null_ptr
        call told(done, "close", status)
    end subroutine

    ! Makes an array of these dimensions: room, not yet values. By one rank, or by many at once; one
    ! that is there must be of the same type and dimensions. With a codec ("lz4", "zstd", "zstd:9",
    ! "shuffle+lz4" ...) it is kept in chunks, each encoded.
    subroutine engram_alloc(pool, id, kind, dims, status, codec)
        type(engram_pool), intent(in) :: pool
        character(*), intent(in) :: id
        integer(c_int), intent(in) :: kind
        integer(c_int64_t), intent(in) :: dims(:)
        integer, intent(out), optional :: status
        character(*), intent(in), optional :: codec
        type(c_ptr) :: options
        integer(c_int) :: done
        options = c_null_ptr
        done = c_options_new(options)
        if (done == 0) done = c_options_unset(options, .true._c_bool)
        if (done == 0 .and. present(codec)) then
            done = c_options_chunks(options, 0_c_size_t, c_null_ptr, codec // c_null_char)
        end if
        if (done == 0) then
            done = c_require(pool%root, id // c_null_char, c_dtype_scalar(kind), &
                             size(dims, kind=c_size_t), dims(size(dims):1:-1), options, c_null_ptr)
        end if
        call told(done, "alloc " // id, status)
        call c_options_free(options)
    end subroutine

    ! Stores a part of an array: from the place `first` on, `counts` items in each dimension.
    subroutine engram_store(pool, id, kind, data, first, counts, status)
        type(engram_pool), intent(in) :: pool
        character(*), intent(in) :: id
        integer(c_int), intent(in) :: kind
        type(*), dimension(..), intent(in), contiguous, target :: data
        integer(c_int64_t), intent(in) :: first(:), counts(:)
        integer, intent(out), optional :: status
        type(c_ptr) :: object
        integer(c_size_t) :: nbytes
        integer(c_int) :: done
        call part(pool, id, kind, size(data, kind=c_size_t), first, counts, object, nbytes, done)
        if (done == 0) then
            done = c_store(object, size(first, kind=c_size_t), first(size(first):1:-1) - 1, &
                           counts(size(counts):1:-1), c_loc(data), nbytes, flush_once)
        end if
        call told(done, "store " // id, status)
        call c_object_free(object)
    end subroutine

    ! Loads a part of an array.
    subroutine engram_load(pool, id, kind, data, first, counts, status)
        type(engram_pool), intent(in) :: pool
        character(*), intent(in) :: id
        integer(c_int), intent(in) :: kind
        type(*), dimension(..), intent(inout), contiguous, target :: data
        integer(c_int64_t), intent(in) :: first(:), counts(:)
        integer, intent(out), optional :: status
        type(c_ptr) :: object
        integer(c_size_t) :: nbytes
        integer(c_int) :: done
        call part(pool, id, kind, size(data, kind=c_size_t), first, counts, object, nbytes, done)
        if (done == 0) then
            done = c_load(object, size(first, kind=c_size_t), first(size(first):1:-1) - 1, &
                          counts(size(counts):1:-1), c_loc(data), nbytes)
        end if
        call told(done, "load " // id, status)
        call c_object_free(object)
    end subroutine

    ! Gives the dimensions of an array.
    subroutine engram_dims(pool, id, dims, status)
        type(engram_pool), intent(in) :: pool
        character(*), intent(in) :: id
        integer(c_int64_t), allocatable, intent(out) :: dims(:)
        integer, intent(out), optional :: status
        integer(c_int64_t), pointer :: shape(:)
        type(c_ptr) :: object
        integer(c_int) :: done
        object = c_null_ptr
        done = c_object_open(pool%root, id // c_null_char, object)
        if (done == 0) then
            call c_f_pointer(c_object_shape(object), shape, [c_object_ndim(object)])
            dims = shape(size(shape):1:-1)
        end if
        call told(done, "dims of " // id, status)
        call c_object_free(object)
    end subroutine

    ! What the last call with a `status` said that failed.
    function engram_message()
        character(:), allocatable :: engram_message
        engram_message = ""
        if (allocated(message)) engram_message = message
    end function

    ! Opens an array for a part of it, and looks whether that fits what the caller has.
    subroutine part(pool, id, kind, items, first, counts, object, nbytes, done)
        type(engram_pool), intent(in) :: pool
        character(*), intent(in) :: id
        integer(c_int), intent(in) :: kind
        integer(c_size_t), intent(in) :: items
        integer(c_int64_t), intent(in) :: first(:), counts(:)
        type(c_ptr), intent(out) :: object
        integer(c_size_t), intent(out) :: nbytes
        integer(c_int), intent(out) :: done
        type(c_ptr) :: dtype
        object = c_null_ptr
        dtype = c_dtype_scalar(kind)
        nbytes = items * c_dtype_itemsize(dtype)
        done = c_object_open(pool%root, id // c_null_char, object)
        if (done /= 0) return
        if (.not. c_dtype_equal(c_object_dtype(object), dtype)) then
            done = refused("what is stored is of another type than was given")
        else if (size(first) /= size(counts)) then
            done = refused("as many places as counts are to be given")
        else if (any(first < 1)) then
            done = refused("places count from 1")
        else if (product(counts) /= items) then
            done = refused("the counts are of another size than the array that was given")
        end if
    end subroutine

    ! A refusal of this module's own: its message is not the library's.
    function refused(why)
        character(*), intent(in) :: why
        integer(c_int) :: refused
        message = why
        refused = -bad_argument
    end function

    subroutine told(done, doing, status)
        integer(c_int), intent(in) :: done
        character(*), intent(in) :: doing
        integer, intent(out), optional :: status
        if (present(status)) status = abs(done)
        if (done == 0) return
        if (done > 0) message = c_text(c_last_error())
        message = doing // ": " // message
        if (.not. present(status)) then
            write (error_unit, "(a)") message
            error stop 1
        end if
    end subroutine

    function c_text(text)
        type(c_ptr), intent(in) :: text
        character(:), allocatable :: c_text
        character(kind=c_char), pointer :: letters(:)
        integer :: place
        call c_f_pointer(text, letters, [c_strlen(text)])
        allocate (character(size(letters)) :: c_text)
        do place = 1, size(letters)
            c_text(place:place) = letters(place)
        end do
    end function

    function given(flag)
        logical, intent(in), optional :: flag
        logical(c_bool) :: given
        given = .false.
        if (present(flag)) given = flag
    end function
end module

! Runs a model from Fortran, with the C API (tern_c.h) and libtern: the model of an ONNX file, whose path is the first
! argument, or without one a network that is trained for a few steps here.
!
! Fortran's array a(n, m) lies in memory as the tensor of shape [m, n].

module tern
  use, intrinsic :: iso_c_binding
  implicit none

  integer(c_int32_t), parameter :: tern_ok = 0, tern_float32 = 2, tern_tanh = 10, tern_mse = 2

  type, bind(c) :: tern_model_options
    integer(c_int32_t) :: size = 0, dtype = 0
    type(c_ptr) :: device = c_null_ptr
    integer(c_int64_t) :: seed = 0
    type(c_ptr) :: labels = c_null_ptr
    integer(c_int64_t) :: label_count = 0
    real(c_double) :: dropout = 0
    integer(c_int32_t) :: has_dropout = 0, new_head = 0
    integer(c_int64_t) :: image_size = 0, max_length = 0
    integer(c_int32_t) :: train_inference_nodes = 0, no_fusion = 0
  end type

  type, bind(c) :: tern_optimizer_options
    integer(c_int32_t) :: size = 0, nesterov = 0
    type(c_ptr) :: name = c_null_ptr
    real(c_double) :: lr = 0, weight_decay = 0, momentum = 0
    integer(c_int32_t) :: has_momentum = 0, kahan = 0
    real(c_double) :: beta1 = 0, beta2 = 0, eps = 0
  end type

  interface
    function tern_status_new() bind(c)
      import
      type(c_ptr) :: tern_status_new
    end function
    function tern_status_message(status) bind(c)
      import
      type(c_ptr), value :: status
      type(c_ptr) :: tern_status_message
    end function
    function tern_status_free(status) bind(c)
      import
      type(c_ptr), value :: status
      integer(c_int32_t) :: tern_status_free
    end function
    function tern_check_version(version, status) bind(c)
      import
      integer(c_int32_t), value :: version
      type(c_ptr), value :: status
      integer(c_int32_t) :: tern_check_version
    end function
    function tern_tensor_new(dtype, shape, ndim, device, data, bytes, tensor, status) bind(c)
      import
      integer(c_int32_t), value :: dtype, ndim
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_ptr), value :: device, data, status
      integer(c_size_t), value :: bytes
      type(c_ptr), intent(out) :: tensor
      integer(c_int32_t) :: tern_tensor_new
    end function
    function tern_tensor_shape(tensor, shape, capacity, ndim, status) bind(c)
      import
      type(c_ptr), value :: tensor, status
      integer(c_int64_t), intent(out) :: shape(*)
      integer(c_int32_t), value :: capacity
      integer(c_int32_t), intent(out) :: ndim
      integer(c_int32_t) :: tern_tensor_shape
    end function
    function tern_tensor_read(tensor, dtype, buffer, bytes, status) bind(c)
      import
      type(c_ptr), value :: tensor, buffer, status
      integer(c_int32_t), value :: dtype
      integer(c_size_t), value :: bytes
      integer(c_int32_t) :: tern_tensor_read
    end function
    function tern_tensor_free(tensor) bind(c)
      import
      type(c_ptr), value :: tensor
      integer(c_int32_t) :: tern_tensor_free
    end function
    function tern_model_load(path, options, model, status) bind(c)
      import
      character(kind=c_char), intent(in) :: path(*)
      type(c_ptr), value :: options, status
      type(c_ptr), intent(out) :: model
      integer(c_int32_t) :: tern_model_load
    end function
    function tern_model_mlp(sizes, count, activation, options, model, status) bind(c)
      import
      integer(c_int64_t), intent(in) :: sizes(*)
      integer(c_int32_t), value :: count, activation
      type(tern_model_options), intent(in) :: options
      type(c_ptr), intent(out) :: model
      type(c_ptr), value :: status
      integer(c_int32_t) :: tern_model_mlp
    end function
    function tern_model_run(model, inputs, input_count, outputs, output_count, status) bind(c)
      import
      type(c_ptr), value :: model, status
      type(c_ptr), intent(in) :: inputs(*)
      type(c_ptr), intent(out) :: outputs(*)
      integer(c_int32_t), value :: input_count, output_count
      integer(c_int32_t) :: tern_model_run
    end function
    function tern_model_free(model) bind(c)
      import
      type(c_ptr), value :: model
      integer(c_int32_t) :: tern_model_free
    end function
    function tern_optimizer_new(model, options, optimizer, status) bind(c)
      import
      type(c_ptr), value :: model, status
      type(tern_optimizer_options), intent(in) :: options
      type(c_ptr), intent(out) :: optimizer
      integer(c_int32_t) :: tern_optimizer_new
    end function
    function tern_optimizer_free(optimizer) bind(c)
      import
      type(c_ptr), value :: optimizer
      integer(c_int32_t) :: tern_optimizer_free
    end function
    function tern_model_train_step(model, optimizer, inputs, input_count, loss, target, loss_options, step_options, &
                                   value, status) bind(c)
      import
      type(c_ptr), value :: model, optimizer, target, loss_options, step_options, status
      type(c_ptr), intent(in) :: inputs(*)
      integer(c_int32_t), value :: input_count, loss
      real(c_double), intent(out) :: value
      integer(c_int32_t) :: tern_model_train_step
    end function
    function strlen(text) bind(c)
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: strlen
    end function
  end interface

  type(c_ptr) :: status = c_null_ptr

contains

  subroutine check(code)
    integer(c_int32_t), intent(in) :: code
    character(kind=c_char), pointer :: text(:)
    type(c_ptr) :: message
    if (code == tern_ok) return
    message = tern_status_message(status)
    call c_f_pointer(message, text, [strlen(message)])
    print *, text
    error stop 1
  end subroutine

  function tensor_of(values, shape) result(tensor)
    real(c_float), intent(in), target :: values(:)
    integer(c_int64_t), intent(in) :: shape(:)
    type(c_ptr) :: tensor
    call check(tern_tensor_new(tern_float32, shape, int(size(shape), c_int32_t), c_null_ptr, c_loc(values), &
                               int(4 * size(values), c_size_t), tensor, status))
  end function

  subroutine read_into(tensor, values)
    type(c_ptr), intent(in) :: tensor
    real(c_float), intent(out), target :: values(:)
    call check(tern_tensor_read(tensor, tern_float32, c_loc(values), int(4 * size(values), c_size_t), status))
  end subroutine

end module

program infer
  use tern
  implicit none
  character(len=1024) :: path

  status = tern_status_new()
  call check(tern_check_version(1_c_int32_t, status))
  call get_command_argument(1, path)
  if (len_trim(path) > 0) then
    call run_digits(trim(path) // c_null_char)
  else
    call fit_sine()
  end if
  call check(tern_status_free(status))

contains

  !> Logits of one image of 64 pixels.
  subroutine run_digits(file)
    character(len=*), intent(in) :: file
    type(c_ptr) :: model, inputs(1), outputs(1)
    integer(c_int64_t) :: shape(8)
    integer(c_int32_t) :: ndim
    real(c_float) :: pixels(64) = 0.5, logits(10)
    call check(tern_model_load(file, c_null_ptr, model, status))
    inputs(1) = tensor_of(pixels, [1_c_int64_t, 64_c_int64_t])
    call check(tern_model_run(model, inputs, 1_c_int32_t, outputs, 1_c_int32_t, status))
    call check(tern_tensor_shape(outputs(1), shape, 8_c_int32_t, ndim, status))
    if (ndim /= 2 .or. shape(1) /= 1 .or. shape(2) /= 10) error stop 2
    call read_into(outputs(1), logits)
    print '(a, 10f8.3)', 'logits', logits
    call check(tern_tensor_free(inputs(1)))
    call check(tern_tensor_free(outputs(1)))
    call check(tern_model_free(model))
  end subroutine

  !> A network with one input learns the sine, which it is then run on.
  subroutine fit_sine()
    integer, parameter :: n = 64
    type(tern_model_options) :: model_options
    type(tern_optimizer_options) :: optimizer_options
    type(c_ptr) :: model, optimizer, inputs(1), outputs(1), wanted
    real(c_float) :: x(n), y(n), found(n)
    real(c_double) :: loss
    integer :: i
    x = [(-3.0 + 6.0 * (i - 1) / (n - 1), i = 1, n)]
    y = sin(x)
    model_options%size = int(c_sizeof(model_options), c_int32_t)
    model_options%seed = 1
    call check(tern_model_mlp([1_c_int64_t, 32_c_int64_t, 32_c_int64_t, 1_c_int64_t], 4_c_int32_t, tern_tanh, &
                              model_options, model, status))
    optimizer_options%size = int(c_sizeof(optimizer_options), c_int32_t)
    optimizer_options%lr = 5d-3
    call check(tern_optimizer_new(model, optimizer_options, optimizer, status))
    inputs(1) = tensor_of(x, [int(n, c_int64_t), 1_c_int64_t])
    wanted = tensor_of(y, [int(n, c_int64_t), 1_c_int64_t])
    do i = 1, 500
      call check(tern_model_train_step(model, optimizer, inputs, 1_c_int32_t, tern_mse, wanted, c_null_ptr, &
                                       c_null_ptr, loss, status))
    end do
    call check(tern_model_run(model, inputs, 1_c_int32_t, outputs, 1_c_int32_t, status))
    call read_into(outputs(1), found)
    print '(a, f8.5)', 'largest error of the sine', maxval(abs(found - y))
    if (.not. maxval(abs(found - y)) < 0.1) error stop 3
    call check(tern_tensor_free(inputs(1)))
    call check(tern_tensor_free(outputs(1)))
    call check(tern_tensor_free(wanted))
    call check(tern_optimizer_free(optimizer))
    call check(tern_model_free(model))
  end subroutine

end program
